"""SL-HyDE: a generator and a retriever that learn from an unlabelled corpus, and its test sets."""
