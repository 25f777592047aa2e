"""What lambda does: curves, rules that choose it, and paired tests, on target/mimic benchmarks."""
