"""What retrieval works on: passages, their store, readers of single sources, and judgments."""
