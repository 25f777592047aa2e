"""RAG2: labels from the perplexity of a rationale, a filter trained on them, and what it is worth.

Source: Sohn et al., "Rationale-Guided Retrieval Augmented Generation for Medical Question
Answering" (2025).
"""
