"""Baselines: rules of thumb, one file each; a new one is a file and a line here."""

from evaluation.baselines.baseline import Baseline
from evaluation.baselines.cloud_only import CLOUD_ONLY
from evaluation.baselines.firmament import FIRMAMENT
from evaluation.baselines.gsp_ss import GSP_SS
from evaluation.baselines.home import HOME
from evaluation.baselines.kubernetes import (
    K8S_BALANCED,
    K8S_DEFAULT,
    K8S_LEAST_ALLOCATED,
    K8S_MOST_ALLOCATED,
)
from evaluation.baselines.least_expected_delay import LEAST_EXPECTED_DELAY
from evaluation.baselines.least_loaded import LEAST_BACKLOG, LEAST_LOADED
from evaluation.baselines.random import RANDOM
from evaluation.baselines.truth_baseline import TruthBaseline

BASELINES = (
    RANDOM, HOME, CLOUD_ONLY, LEAST_LOADED, LEAST_BACKLOG,
    K8S_DEFAULT, K8S_LEAST_ALLOCATED, K8S_MOST_ALLOCATED, K8S_BALANCED, FIRMAMENT,
)  # fmt: skip
"""Every baseline that needs nothing but the cluster."""

COMPARED = (RANDOM, HOME, CLOUD_ONLY, LEAST_LOADED, LEAST_BACKLOG, K8S_DEFAULT)
"""Those that stand in every comparison; the others are asked for by name (`schedtwin bench truth --policies`)."""

TRUTH_BASELINES = (LEAST_EXPECTED_DELAY, GSP_SS)
"""Every baseline that knows the simulated world."""

__all__ = [
    "BASELINES",
    "CLOUD_ONLY",
    "COMPARED",
    "FIRMAMENT",
    "GSP_SS",
    "HOME",
    "K8S_BALANCED",
    "K8S_DEFAULT",
    "K8S_LEAST_ALLOCATED",
    "K8S_MOST_ALLOCATED",
    "LEAST_BACKLOG",
    "LEAST_EXPECTED_DELAY",
    "LEAST_LOADED",
    "RANDOM",
    "TRUTH_BASELINES",
    "Baseline",
    "TruthBaseline",
]
