"""Workshop: what made committed texts, judgments, labels and adapters once. See tools/README.md."""
