"""How long runs take by the labels of a request that states no run time: its service, its scenario, its queue.

    expected run = median of the service * factor of its scenario * factor of its queue

Where a log has no requested run times, a coarse class of size (short and long prompts, a queue for long jobs) says
how much is asked for. Factors are shrunk means of log(run / what is expected so far), the node's usual run taken off,
of the label over all services and then of each service by itself. They count only where they forecast halves of the log
that they were not fitted on better than medians alone, beyond chance and by a share of the variance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twin.placement.cross_validation import MIN_RUNS, forecasts_better
from twin.placement.service_times import run_ratios, shrunk_means
from twin.records import at_rows


@dataclass(frozen=True)
class RunLabels:
    """Factors of run times by labels.

    Attributes:
        of_scenario: [services, scenarios].
        of_queue: [services, queues].
    """

    of_scenario: np.ndarray
    of_queue: np.ndarray

    def factor(self, service: Any, scenario: Any, queue: Any) -> np.ndarray:
        """What the run of the service is multiplied by; indices of one shape."""
        return np.asarray(self.of_scenario[service, scenario] * self.of_queue[service, queue])


def run_labels_of(content: Mapping[str, Any] | None) -> RunLabels | None:
    """The factors that an encoding's JSON holds."""
    if content is None:
        return None
    return RunLabels(np.array(content["of_scenario"], float), np.array(content["of_queue"], float))


class LabelledRuns(NamedTuple):
    """Runs of a log in order of arrival; leaves [rows]."""

    service: np.ndarray
    scenario: np.ndarray
    queue: np.ndarray
    node: np.ndarray  # -1 where the log does not name it
    run_s: np.ndarray  # NaN where unknown
    usual_s: np.ndarray  # the median of the service; NaN where the request states its run time


def fit_run_labels(runs: LabelledRuns, num_nodes: int, num_labels: tuple[int, int, int]) -> RunLabels | None:
    """The factors of a log.

    Args:
        runs: Of the training days.
        num_nodes: Of the cluster.
        num_labels: Services, scenarios and queues of the vocabularies.

    Returns:
        The factors; None where they forecast no better than the medians of services, beyond chance.
    """
    known = (np.nan_to_num(runs.run_s) > 0.0) & (np.nan_to_num(runs.usual_s) > 0.0) & (runs.node >= 0)
    if known.sum() < MIN_RUNS:
        return None
    runs = at_rows(runs, np.flatnonzero(known))

    def errors(fitted: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some, left_out = at_rows(runs, fitted), at_rows(runs, held)
        plain = _errors(some, left_out, num_nodes, num_labels, None)
        return plain, _errors(some, left_out, num_nodes, num_labels, _fit(some, num_nodes, num_labels))

    if not forecasts_better(len(runs.node), errors):
        return None
    return _fit(runs, num_nodes, num_labels)


def _fit(runs: LabelledRuns, num_nodes: int, num_labels: tuple[int, int, int]) -> RunLabels:
    num_services, num_scenarios, num_queues = num_labels
    kinds = ((runs.scenario, num_scenarios), (runs.queue, num_queues))
    effects = [np.zeros((num_services, size)) for _, size in kinds]
    for _ in range(2):
        for one, (label, size) in enumerate(kinds):
            factor = RunLabels(*(np.exp(effect) for effect in effects)).factor(
                runs.service, runs.scenario, runs.queue
            )
            left = _residual(runs, factor, num_nodes, num_services) + effects[one][runs.service, label]
            of_label, _ = shrunk_means(left, label, size)
            left = left - of_label[label]
            of_pair, _ = shrunk_means(left, runs.service * size + label, num_services * size)
            effects[one] = of_label + of_pair.reshape(num_services, size)
    return RunLabels(*(np.exp(effect) for effect in effects))


def _residual(runs: LabelledRuns, factor: np.ndarray, num_nodes: int, num_services: int) -> np.ndarray:
    """[rows] log(run / expected), the usual ratio of the service on the node taken off."""
    expected_s = runs.usual_s * factor
    ratio = run_ratios(runs.service, runs.node, runs.run_s, expected_s, (num_services, num_nodes)).ratio
    return np.log(runs.run_s / (expected_s * ratio[runs.service, runs.node]))


def _errors(
    fitted: LabelledRuns,
    held: LabelledRuns,
    num_nodes: int,
    num_labels: tuple[int, int, int],
    found: RunLabels | None,
) -> np.ndarray:
    """[held rows] squared errors of the logarithm of run times, by tables of other rows."""

    def expected_s(runs: LabelledRuns) -> np.ndarray:
        if found is None:
            return runs.usual_s
        return np.asarray(runs.usual_s * found.factor(runs.service, runs.scenario, runs.queue))

    shape = num_labels[0], num_nodes
    ratio = run_ratios(fitted.service, fitted.node, fitted.run_s, expected_s(fitted), shape).ratio
    return np.asarray(np.log(held.run_s / (expected_s(held) * ratio[held.service, held.node])) ** 2)
