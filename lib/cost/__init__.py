"""What a run costs: measured speeds, needs at paper scale, and the ledger of recordings."""
