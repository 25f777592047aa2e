"""One room a study: the paper's tables, lambda, mimics, contradiction, the audit."""
