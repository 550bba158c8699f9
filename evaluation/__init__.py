"""Judging: time-shifted days, metrics, baselines, the ground truth, reports and the command line."""

from twin.backend import prepare

prepare()  # here, because modules of this package import JAX before they import the twin
