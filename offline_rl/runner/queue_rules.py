"""The published rules of a queue in NumPy, for bundles that hold one: lowest score first, ties in order of arrival.

`twin.ordering.rules` has them with their sources; an installation that only runs policies lacks that package.
"""

from collections.abc import Callable, Mapping

import numpy as np

from logs_schema.errors import ProductError

Jobs = Mapping[str, np.ndarray]
"""[waiting] arrival_s (since the rule's beginning), wait_s, processors and requested_s."""


def _wfp3(jobs: Jobs) -> np.ndarray:
    relative = jobs["wait_s"] / jobs["requested_s"]
    return np.asarray(-(relative * relative * relative) * jobs["processors"])


def _unicef(jobs: Jobs) -> np.ndarray:
    size = np.maximum(np.log2(jobs["processors"]), 1e-9)
    return np.asarray(-jobs["wait_s"] / (size * jobs["requested_s"]))


def _f1(jobs: Jobs) -> np.ndarray:
    size = np.log10(jobs["requested_s"]) * jobs["processors"]
    return np.asarray(size + 870.0 * np.log10(np.maximum(jobs["arrival_s"], 1.0)))


SCORES: dict[str, Callable[[Jobs], np.ndarray]] = {
    "fcfs": lambda jobs: jobs["arrival_s"],
    "sjf": lambda jobs: jobs["requested_s"],
    "saf": lambda jobs: np.asarray(jobs["requested_s"] * jobs["processors"]),
    "ljf": lambda jobs: -jobs["processors"],
    "wfp3": _wfp3,
    "unicef": _unicef,
    "f1": _f1,
}
"""Every rule that needs nothing but what a scheduler is told."""


def places(rule: str, jobs: Jobs) -> np.ndarray:
    """[waiting] the place of every job in a rule's order, from 0; ProductError where the rule is unknown here."""
    if rule not in SCORES:
        raise ProductError(
            f"this bundle asks for a rule unknown here: {rule!r}",
            allowed=", ".join(SCORES),
            advice="update the runner",
        )
    place = np.empty(len(jobs["wait_s"]))
    place[np.argsort(SCORES[rule](jobs), kind="stable")] = np.arange(len(place))
    return place
