"""Judging: time-shifted days, metrics, baselines, the ground truth, reports and the command line."""
