"""How long runs of an agent take, over what is expected of its requests: habits that no request states.

    expected run = (requested, or usual of the labels) * factor of the agent for the service

Where requested times are only limits, every user asks for too much in a way of his own (D. Tsafrir, Y. Etsion and
D. Feitelson, Backfilling using system-generated predictions rather than user runtime estimates, 2007); where nothing is
requested, each sends inputs of his own size. Factors are shrunk means of log(run / expected), the node's usual run
taken off, of the agent over all services and then for each. They count only where they forecast halves of the log that
they were not fitted on better than none, beyond chance and by a share of the variance. Agents that training does not
know, or hardly, have the factor 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twin.placement.cross_validation import MIN_RUNS, forecasts_better
from twin.placement.service_times import run_ratios, shrunk_means

MAX_AGENTS = 256
"""Agents that have a factor, those of the most runs first."""
MIN_RUNS_EACH = 20
"""Runs that an agent needs for it."""


@dataclass(frozen=True)
class RunHabits:
    """Factors of run times by agent.

    Attributes:
        agents: Those that are known to differ; in order.
        of_agent: [services, agents].
    """

    agents: tuple[str, ...]
    of_agent: np.ndarray

    def factor(self, service: np.ndarray, agents: Sequence[str | None] | np.ndarray) -> np.ndarray:
        """[rows] what the expected run of a service is multiplied by for an agent of that name."""
        place_of = {name: place for place, name in enumerate(self.agents)}
        place = np.array([place_of.get(name, -1) for name in agents], np.int64)  # type: ignore[arg-type]
        known = np.append(self.of_agent, np.ones((len(self.of_agent), 1)), axis=1)
        return np.asarray(known[service, place])


def run_habits_of(content: Mapping[str, Any] | None) -> RunHabits | None:
    """The factors that an encoding's JSON holds."""
    if content is None:
        return None
    return RunHabits(tuple(content["agents"]), np.array(content["of_agent"], float))


class _AgentRuns(NamedTuple):
    service: np.ndarray
    agent: np.ndarray  # index; the last one stands for all others
    node: np.ndarray
    run_s: np.ndarray
    expected_s: np.ndarray

    def some(self, rows: np.ndarray) -> "_AgentRuns":
        return _AgentRuns(*(leaf[rows] for leaf in self))


def fit_run_habits(
    service: np.ndarray,
    agents: Sequence[str | None],
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    shape: tuple[int, int],
) -> RunHabits | None:
    """The factors of a log.

    Args:
        service, node: [rows] indices, in order of arrival; node -1 where the log does not name it.
        agents: [rows] names, None where hidden.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected of it: requested, or usual of its labels.
        shape: Numbers of services and nodes.

    Returns:
        The factors; None where they forecast no better than none, beyond chance.
    """
    rows = np.flatnonzero((node >= 0) & (np.nan_to_num(run_s) > 0.0) & (np.nan_to_num(expected_s) > 0.0))
    if len(rows) < MIN_RUNS:
        return None
    names, index = np.unique([agents[row] or "" for row in rows.tolist()], return_inverse=True)
    count = np.bincount(index, minlength=len(names)) * (names != "")
    often = np.argsort(-count, kind="stable")[:MAX_AGENTS]
    kept = np.sort(often[count[often] >= MIN_RUNS_EACH])
    if len(kept) < 2:
        return None
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    runs = _AgentRuns(service[rows], place[index], node[rows], run_s[rows], expected_s[rows])
    sizes = shape[0], len(kept)

    def errors(fitted: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some, left_out = runs.some(fitted), runs.some(held)
        plain = _errors(some, left_out, shape, np.ones((sizes[0], sizes[1] + 1)))
        return plain, _errors(some, left_out, shape, _fit(some, shape, sizes))

    if not forecasts_better(len(rows), errors):
        return None
    return RunHabits(tuple(names[kept].tolist()), _fit(runs, shape, sizes)[:, :-1])


def _fit(runs: _AgentRuns, shape: tuple[int, int], sizes: tuple[int, int]) -> np.ndarray:
    """[services, agents + 1] factors; 1 of the others."""
    num_services, num_agents = sizes
    effect = np.zeros((num_services, num_agents + 1))
    for _ in range(2):
        left = _residual(runs, runs, shape, np.exp(effect)) + effect[runs.service, runs.agent]
        of_agent, _ = shrunk_means(left, runs.agent, num_agents + 1)
        left = left - of_agent[runs.agent]
        group = runs.service * (num_agents + 1) + runs.agent
        of_pair, _ = shrunk_means(left, group, num_services * (num_agents + 1))
        effect = of_agent + of_pair.reshape(effect.shape)
        effect[:, -1] = 0.0
    return np.exp(effect)


def _errors(fitted: _AgentRuns, held: _AgentRuns, shape: tuple[int, int], factor: np.ndarray) -> np.ndarray:
    """[held rows] squared errors of the logarithm of run times, by tables of other rows."""
    return np.asarray(_residual(fitted, held, shape, factor) ** 2)


def _residual(fitted: _AgentRuns, held: _AgentRuns, shape: tuple[int, int], factor: np.ndarray) -> np.ndarray:
    """[held rows] log(run / expected), what the tables of the fitted rows say of service and node taken off."""
    expected_s = fitted.expected_s * factor[fitted.service, fitted.agent]
    ratio = run_ratios(fitted.service, fitted.node, fitted.run_s, expected_s, shape).ratio
    usual_s = held.expected_s * factor[held.service, held.agent] * ratio[held.service, held.node]
    return np.asarray(np.log(held.run_s / usual_s))
