"""Contradiction that was judged: which pairs of texts, how, and whether the judge is an instrument.

``tools.pools`` chose the pairs by rules that were written down before any was judged, and
``tools.judging`` asked the judge; ``quality`` says what the pairs of known label tell of the judge.
"""
