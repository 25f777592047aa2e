"""Dated abstracts on what leaflets are asked: bundled, open, or found in PubMed.

``records`` is what is passed on: Evidence (an abstract) and Need (a question of a leaflet).
``load`` reads the bundled and the open abstracts. ``leaflets`` reads needs from TGA leaflets and
FDA labels, ``queries`` turns a need into three tiers of queries, ``pubmed`` asks NCBI and iCite.
"""
