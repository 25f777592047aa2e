"""When evidence contradicts: dated abstracts on one question, and how far they disagree.

``records`` is what everything passes on: Evidence (an abstract) and Need (a question of a leaflet).
``evidence`` loads the bundled and the open abstracts; ``labelled`` sentence pairs with labels.
``queries`` turns a need into three tiers of PubMed queries; ``pubmed`` asks NCBI and iCite.
``leaflets`` reads needs from TGA leaflets and from FDA labels.
``nli`` says how likely one sentence contradicts another; ``head`` is the small model of our own
for that, and ``train_head`` trains it.
``cnt`` is the contradiction of two abstracts, and of one abstract with all others.
``select`` chooses and ranks abstracts: Algorithms 1 and 2, the score S, the three conditions.
``quality`` compares an answer with the leaflet's.
``study`` makes the tables, ``outcomes`` and ``checks`` test them, ``plots`` draws them.
"""
