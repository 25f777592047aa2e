"""From texts to ranked passages: encoders, vectors, indexes, BM25, and the maths of contrast."""
