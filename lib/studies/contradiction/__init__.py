"""When evidence contradicts: how far the abstracts found for one question disagree.

It follows *When Evidence Contradicts*, with what is needed to read its numbers beside each step.
``cnt`` is the contradiction of two abstracts, and of one abstract with all others.
``select`` chooses and ranks abstracts: Algorithms 1 and 2, the score S, the three conditions.
``study`` makes the tables; ``outcomes`` answers questions from the conditions, and ``quality``
compares an answer with the leaflet's. ``checks`` asks whether CNT finds disagreement that is known;
``retrieved``, what CHR's mimic does to it. ``lib.plots.figures`` draws.
"""
