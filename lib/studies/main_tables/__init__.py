"""The paper's grid: every method, question set and answerer; Tables 1 to 3, Figure 5, claims.

``experiment`` opens and runs a profile's, a file a cell; ``tables`` makes the paper's tables of it,
``accuracy`` is their arithmetic; ``again`` asks a model once more for what could not be used.
"""
