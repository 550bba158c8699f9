"""Benches: differences of policies in the simulated truth, references trained in it, cost against size."""
