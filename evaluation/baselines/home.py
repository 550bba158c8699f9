"""Home: the least loaded node of the site where the request arrived; another site's only where none there is legal."""

from evaluation.baselines.baseline import Baseline, least_loaded_among

HOME = Baseline(
    "home",
    "the least loaded legal node of the request's own site",
    least_loaded_among("same_site"),
    lambda cluster: len(cluster.sites) > 1,
)
