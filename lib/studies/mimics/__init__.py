"""How good is the mimic? Tiers, proxies that need no grader, a judge, and five worked cases.

``items`` measures every question's pair, ``tier_statistics`` tests the graders' tiers, ``judge``
asks a model for the paper's tiers, ``cases`` ranks the passages of the worked cases, ``tables``
keeps the results.
"""
