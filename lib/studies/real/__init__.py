"""The real sample: a capable writer's texts, judged evidence, and what contrast does there."""

TABLES = (
    "judge_quality",
    "real_dev_lambda",
    "real_least",
    "real_dev",
    "claims_real",
    "real_arms",
    "real_purity",
    "real_lambda",
    "real_where",
    "real_cases",
    "real_case_texts",
    "real_case_counts",
    "real_texts",
)
"""All but the second encoder's, which has a command of its own (``make figures PROFILE=open
ENCODER=mpnet``)."""
