"""When evidence contradicts: how far the abstracts found for one question disagree.

It follows *When Evidence Contradicts*, with what is needed to read its numbers beside each step.
``evidence`` and ``pubmed`` give dated abstracts and questions; ``nli`` has models of
contradiction, measured on the pairs of ``labelled``; ``cnt`` is the contradiction of two abstracts.
``pools`` finds, chooses and ranks abstracts, ``answers`` answers from them, ``checks`` asks whether
CNT finds disagreement that is known. ``study`` makes the tables; ``judged`` says the same by a
judge's labels.
"""
