"""What only a run on the scale of the paper needs: its corpus, and several devices."""
