"""The paper's grid: every method, question set and answerer; Tables 1 to 3, Figure 5, claims.

``cells`` makes one file a cell, ``experiment`` opens and runs a profile's, ``tables`` makes the
paper's tables of them (``accuracy`` and ``shift`` are the arithmetic), ``plots`` draws.
"""
