"""The HyDE lesson, claim by claim: passages against questions, and what a wrong passage does."""
