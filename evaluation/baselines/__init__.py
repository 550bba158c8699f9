"""Baselines: rules of thumb, one file each; a new one is a file and a line here."""

from evaluation.baselines.baseline import Baseline
from evaluation.baselines.least_loaded import LEAST_BACKLOG, LEAST_LOADED
from evaluation.baselines.random import RANDOM

BASELINES = (RANDOM, LEAST_LOADED, LEAST_BACKLOG)
"""Every baseline that needs nothing but the cluster."""

__all__ = ["BASELINES", "LEAST_BACKLOG", "LEAST_LOADED", "RANDOM", "Baseline"]
