"""The rules of a queue in NumPy, for bundles that hold one: lowest score first, ties in order of arrival.

`twin.ordering.rules` has the published ones with their sources, `twin.ordering.predicted` the orders under predicted
run times; an installation that only runs policies lacks that package.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.errors import ProductError

Jobs = Mapping[str, np.ndarray]
"""[waiting] arrival_s (since the rule's beginning), wait_s, processors, requested_s and, where needed, predicted_s."""
Setting = Mapping[str, Any]
"""Of a contract."""
WEIGHTED = "weighted"
"""The rule whose numbers stand in the setting: `run_weight`, `width_weight`, `ageing`, what is predicted, and how
predictions are corrected."""
BY_PREDICTED_RUN, BY_WEIGHTED = "by_predicted_run", "by_weighted"
NUMBERS = ("run_weight", "width_weight", "ageing")
MEANINGS = {
    "run_weight": "of ln(run time in seconds): the requested one, or the one predicted from the user's last two jobs",
    "width_weight": "of ln(processors)",
    "ageing": "by how much the score falls in a day of waiting; the lowest score goes first",
}
"""Numbers of a weighted rule -> their meaning."""


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
"""Every rule whose inputs are known to any scheduler."""


BACKFILLING = {
    "by_arrival": "fcfs",
    "by_requested": "sjf",
    "by_area": "saf",
    "by_processors": "ljf",
    "by_wfp3": "wfp3",
    "by_unicef": "unicef",
    "by_f1": "f1",
}
"""Orders of backfilling, as a setting names them -> the rule."""


def places(setting: Setting, jobs: Jobs) -> np.ndarray:
    """[waiting] the place of every job in the order of a setting's rule, from 0; ProductError where it is unknown."""
    rule = setting["rule"]
    if rule != WEIGHTED and rule not in SCORES:
        raise ProductError(
            f"this bundle needs a rule unknown here: {rule!r}",
            allowed=", ".join((*SCORES, WEIGHTED)),
            advice="update the runner",
        )
    score = weighted(setting, jobs) if rule == WEIGHTED else SCORES[rule](jobs)
    place = np.empty(len(jobs["wait_s"]))
    place[np.argsort(score, kind="stable")] = np.arange(len(place))
    return place


def weighted(setting: Setting, jobs: Jobs) -> np.ndarray:
    """[waiting] scores under the numbers of a setting."""
    run_weight, width_weight, ageing = (setting["numbers"][name] for name in NUMBERS)
    score = run_weight * np.log(jobs["predicted_s"]) + width_weight * np.log(jobs["processors"])
    return np.asarray(score + ageing * (jobs["arrival_s"] / DAY_S))


def backfilling(setting: Setting, jobs: Jobs) -> np.ndarray:
    """[waiting] scores in whose order jobs fill a gap; ProductError where the order is unknown."""
    order = setting["backfill"]
    if order == BY_PREDICTED_RUN:
        return np.log(jobs["predicted_s"])
    if order == BY_WEIGHTED:
        return weighted(setting, jobs)
    if order not in BACKFILLING:
        raise ProductError(f"this bundle needs an order of backfilling unknown here: {order!r}")
    return SCORES[BACKFILLING[order]](jobs)


def predicts(setting: Setting) -> bool:
    """Whether run times are predicted from users' own jobs."""
    return bool(setting.get("predicts", False))


def reserves(setting: Setting) -> bool:
    """Whether predictions give when running jobs end, too."""
    return bool(setting.get("reserves", False))


def predicted_s(setting: Setting, requested_s: float, last_s: float | None, before_s: float | None) -> float:
    """The mean of a user's last two run times in whole seconds, at most what is requested; that where it is unknown."""
    if not predicts(setting) or last_s is None or before_s is None:
        return requested_s
    return min(requested_s, max((last_s + before_s) // 2.0, 1.0))


def corrected_end_s(
    setting: Setting, started_s: float, predicted_s: float, requested_s: float, clock_s: float
) -> float:
    """When a job is expected to end that was predicted to run so long: later by one correction after the other."""
    limit_s, count = started_s + requested_s, 0
    expected_s = min(started_s + predicted_s, limit_s)
    steps_s = setting["corrections_s"]
    while expected_s <= clock_s and expected_s < limit_s:
        expected_s = min(expected_s + steps_s[min(count, len(steps_s) - 1)], limit_s)
        count += 1
    return expected_s
