"""Contradiction that was judged: which pairs of texts, how, and whether the judge is an instrument.

``sample`` chooses the pairs by rules that were written down before any was judged, ``sheets`` is
what a judge is shown and how what comes back becomes labels, ``plants`` the pairs whose label is
known, ``quality`` what all that says of the judge, ``desk`` how sheets go out and come back.
"""
