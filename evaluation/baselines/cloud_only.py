"""Cloud only: the least loaded cloud node in the observation of the deciding site; another one if none is legal."""

import numpy as np

from evaluation.baselines.baseline import Baseline, least_loaded_among

CLOUD_ONLY = Baseline(
    "cloud_only",
    "the least loaded legal node of the cloud",
    least_loaded_among("is_cloud"),
    lambda cluster: bool(np.any(cluster.is_cloud)) and not np.all(cluster.is_cloud),
)
