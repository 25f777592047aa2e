"""Accuracy: an answerer reads what is retrieved while the options' names are masked.

The answerer cannot remember which option is right, since question, options and passages call it
``Entity-K``: what it gets right beyond chance, a passage told it. ``sample`` draws questions that
no study has used, ``mask`` hides names, ``answering`` asks, ``texts`` says what is written for each
question, ``study`` compares.
"""

TABLES = (
    "masked_instrument",
    "masked_choices",
    "masked_least",
    "masked_dev",
    "masked_arms",
    "claims_masked",
    "masked_clean",
    "masked_wrong",
    "masked_hypotheses",
    "masked_costs",
    "masked_openly",
)
"""What the study makes, committed for ``open``."""
