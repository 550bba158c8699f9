"""Benches: what tells policies apart in the simulated truth, references trained in it, speed against size."""
