"""Baselines: heuristics, one file each; a new one is a file and a line here."""

from evaluation.baselines.baseline import Baseline
from evaluation.baselines.cloud_only import CLOUD_ONLY
from evaluation.baselines.firmament import FIRMAMENT
from evaluation.baselines.greedy_scaling import GREEDY_SCALING
from evaluation.baselines.gsp_ss import GSP_SS
from evaluation.baselines.gsp_ss_by_slots import gsp_ss_dispatch
from evaluation.baselines.home import HOME
from evaluation.baselines.horizontal_scaling import HPA, HPA_REQUESTS
from evaluation.baselines.kubernetes import K8S_BALANCED, K8S_DEFAULT, K8S_LEAST_ALLOCATED, K8S_MOST_ALLOCATED
from evaluation.baselines.least_expected_delay import LEAST_EXPECTED_DELAY
from evaluation.baselines.least_loaded import LEAST_BACKLOG, LEAST_LOADED
from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from evaluation.baselines.random import RANDOM
from evaluation.baselines.random_scaling import RANDOM_SCALING
from evaluation.baselines.static_deployment import STATIC_DEPLOYMENT
from evaluation.baselines.truth_baseline import TruthBaseline

BASELINES = (
    RANDOM, HOME, CLOUD_ONLY, LEAST_LOADED, LEAST_BACKLOG,
    K8S_DEFAULT, K8S_LEAST_ALLOCATED, K8S_MOST_ALLOCATED, K8S_BALANCED, FIRMAMENT,
)  # fmt: skip
"""Every baseline that needs the cluster only."""

COMPARED = (RANDOM, HOME, CLOUD_ONLY, LEAST_LOADED, LEAST_BACKLOG, K8S_DEFAULT)
"""The baselines of a comparison that names none; the others are chosen by name."""

TRUTH_BASELINES = (LEAST_EXPECTED_DELAY, GSP_SS)
"""Every baseline that reads the tables of the simulated world."""

ORCHESTRATION_BASELINES = (STATIC_DEPLOYMENT, RANDOM_SCALING, HPA, HPA_REQUESTS, GREEDY_SCALING)
"""Every baseline that changes the deployment by frame, and the one that never does."""

__all__ = [
    "BASELINES",
    "CLOUD_ONLY",
    "COMPARED",
    "FIRMAMENT",
    "GREEDY_SCALING",
    "GSP_SS",
    "HOME",
    "HPA",
    "HPA_REQUESTS",
    "K8S_BALANCED",
    "K8S_DEFAULT",
    "K8S_LEAST_ALLOCATED",
    "K8S_MOST_ALLOCATED",
    "LEAST_BACKLOG",
    "LEAST_EXPECTED_DELAY",
    "LEAST_LOADED",
    "ORCHESTRATION_BASELINES",
    "RANDOM",
    "RANDOM_SCALING",
    "STATIC_DEPLOYMENT",
    "TRUTH_BASELINES",
    "Baseline",
    "OrchestrationBaseline",
    "TruthBaseline",
    "gsp_ss_dispatch",
]
