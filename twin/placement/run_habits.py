"""How long runs take, over what their requests say: habits of agents, and how far what is requested counts.

    expected run = (requested, or usual of the labels) * factor of the agent for the service
    and of a requested one:  typical of the service * (that / typical of the service) ^ exponent

Where requested times are only limits, every user asks for too much in a way of his own (D. Tsafrir, Y. Etsion and
D. Feitelson, Backfilling using system-generated predictions rather than user runtime estimates, 2007); where nothing is
requested, each sends inputs of his own size. Factors are shrunk means of log(run / expected), the node's usual run
taken off, of the agent over all services and then for each. They count only where they forecast halves of the log that
they were not fitted on better than none, beyond chance and by a share of the variance. Agents that training does not
know, or hardly, have the factor 1.

Each run of the log has a part in its own factor, the larger the fewer runs its agent has: with it runs would seem to
scatter less than those of other days do. So of a run that the factors were fitted on is expected what they would say
had it not been there:

    log factor - h / (1 - h) * (log(run) - log(expected run))      h: its part

Source: R. D. Cook, Detection of influential observation in linear regression, Technometrics, 1977.

Who requests twice as long rarely runs twice as long where that is only a limit, so longer and shorter requests of a
service are drawn together by an exponent, of least squares, that counts under the same condition; else it is 1.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.conventions import drawn_together
from twin.placement.cross_validation import MIN_RUNS, forecasts_better
from twin.placement.service_times import run_ratios, shrunk_means
from twin.records import at_rows

MAX_AGENTS = 256
"""Agents that have a factor, those of the most runs first."""
MIN_RUNS_EACH = 20
"""Runs that an agent needs for it."""
LEAST_EXPONENT = 0.05
"""What is requested is known to say something: the order of requests stays."""
_STEPS = 3


@dataclass(frozen=True)
class RunHabits:
    """Factors of run times by agent, and how far requested times count.

    Attributes:
        agents: Those that are known to differ; in order.
        of_agent: [services, agents].
        exponent: In (0, 1], of requested times.
        typical_s: [services] what requests of each ask for, factors included; empty where the exponent is 1.
        own_part: [services, agents] the part that each run of the log has in the logarithm of its own factor, in
            [0, 1); empty where it is not known.
    """

    agents: tuple[str, ...]
    of_agent: np.ndarray
    exponent: float = 1.0
    typical_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    own_part: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def factor(
        self,
        service: np.ndarray,
        agents: Sequence[str | None] | np.ndarray,
        own_ratio: np.ndarray | None = None,
    ) -> np.ndarray:
        """[rows] what the expected run of a service is multiplied by for an agent of that name.

        Args:
            service: [rows] index.
            agents: [rows] names.
            own_ratio: [rows] run time over the node's usual ratio and over what was asked for, of rows whose factor is
                to be the one without their own run; NaN of those that the factors were not fitted on.
        """
        place_of = {name: place for place, name in enumerate(self.agents)}
        place = np.array([place_of.get(name, -1) for name in agents], np.int64)  # type: ignore[arg-type]
        factor = np.asarray(_and_others(self.of_agent, 1.0)[service, place])
        if own_ratio is None or not self.own_part.size:
            return factor
        part = _and_others(self.own_part, 0.0)[service, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.log(own_ratio / factor)
        return np.asarray(factor * np.exp(-part / (1.0 - part) * np.where(np.isfinite(beyond), beyond, 0.0)))


def _and_others(of_agent: np.ndarray, value: float) -> np.ndarray:
    """[services, agents + 1] a table of agents, and last the value of all others."""
    return np.append(of_agent, np.full((len(of_agent), 1), value), axis=1)


def expected_s_of(
    habits: RunHabits | None,
    service: np.ndarray,
    agents: Sequence[str | None] | np.ndarray,
    whole_s: np.ndarray,
    is_requested: np.ndarray,
    own_run_s: np.ndarray | None = None,
) -> np.ndarray:
    """[rows] the expected run times of requests that ask for `whole_s`, or usually take it; of runs that the habits
    were fitted on without themselves. `own_run_s`: these over their nodes' usual ratio, NaN where there is none."""
    if habits is None:
        return whole_s
    own_ratio = None if own_run_s is None else own_run_s / whole_s
    found_s = whole_s * habits.factor(service, agents, own_ratio)
    if habits.exponent == 1.0:
        return found_s
    return np.where(
        is_requested, drawn_together(found_s, habits.typical_s[service], habits.exponent), found_s
    )


def run_habits_of(content: Mapping[str, Any] | None) -> RunHabits | None:
    """The factors that an encoding's JSON holds."""
    if content is None:
        return None
    return RunHabits(
        tuple(content["agents"]),
        np.array(content["of_agent"], float),
        float(content.get("exponent", 1.0)),
        np.array(content.get("typical_s", ()), float),
        np.array(content.get("own_part", ()), float),
    )


def own_runs_s(
    train_days: Sequence[dt.date],
    arrival_s: np.ndarray,
    start_s: np.ndarray,
    finish_s: np.ndarray,
    node: np.ndarray,
) -> np.ndarray:
    """[rows] the run times of training days, on which habits are fitted; NaN of others. Instants in seconds since 1970,
    inf where unknown."""
    days = [(day - dt.date(1970, 1, 1)).days for day in train_days]
    ended = np.isfinite(start_s) & np.isfinite(finish_s) & (finish_s > start_s)
    fitted = ended & (node >= 0) & np.isin(arrival_s // DAY_S, days)
    return np.subtract(finish_s, start_s, out=np.full(len(node), np.nan), where=fitted)


class _AgentRuns(NamedTuple):
    service: np.ndarray
    agent: np.ndarray  # index; the last one stands for all others
    node: np.ndarray
    run_s: np.ndarray
    expected_s: np.ndarray


def fit_run_habits(
    service: np.ndarray,
    agents: Sequence[str | None],
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    shape: tuple[int, int],
    is_requested: np.ndarray | None = None,
) -> RunHabits | None:
    """The habits of a log.

    Args:
        service, node: [rows] indices, in order of arrival; node -1 where the log does not name it.
        agents: [rows] names, None where hidden.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected of it: requested, or usual of its labels.
        shape: Numbers of services and nodes.
        is_requested: [rows] whether that was requested; None: of none.

    Returns:
        The factors, and how far requests count; None where both forecast no better than nothing, beyond chance.
    """
    known = (node >= 0) & (np.nan_to_num(run_s) > 0.0) & (np.nan_to_num(expected_s) > 0.0)
    factors = _fit_factors(service, agents, node, run_s, expected_s, shape, known)
    if is_requested is None or not is_requested.any():
        return factors
    habits = factors or RunHabits((), np.ones((shape[0], 0)))
    whole_s = expected_s * habits.factor(service, agents)
    rows = np.flatnonzero(known & is_requested)
    none = np.zeros(len(rows), np.int64)
    found = _fit_exponent(_AgentRuns(service[rows], none, node[rows], run_s[rows], whole_s[rows]), shape)
    return factors if found is None else replace(habits, exponent=found[0], typical_s=found[1])


def _fit_factors(
    service: np.ndarray,
    agents: Sequence[str | None],
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    shape: tuple[int, int],
    known: np.ndarray,
) -> RunHabits | None:
    """The factors of agents, of some rows (bool [rows]); None where they forecast no better than none."""
    rows = np.flatnonzero(known)
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
        some, left_out = at_rows(runs, fitted), at_rows(runs, held)
        plain = _errors(some, left_out, shape, np.ones((sizes[0], sizes[1] + 1)))
        return plain, _errors(some, left_out, shape, _fit(some, shape, sizes)[0])

    if not forecasts_better(len(rows), errors):
        return None
    factor, own_part = _fit(runs, shape, sizes)
    return RunHabits(tuple(names[kept].tolist()), factor[:, :-1], own_part=own_part[:, :-1])


def _fit_exponent(runs: _AgentRuns, shape: tuple[int, int]) -> tuple[float, np.ndarray] | None:
    """How far requested times count, and what is typical of services; None where they count in full."""
    if len(runs.node) < MIN_RUNS:
        return None

    def errors(fitted: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some, left_out, alike = at_rows(runs, fitted), at_rows(runs, held), np.ones((shape[0], 1))
        exponent, typical_s = _exponent(some, shape)

        def together(runs: _AgentRuns) -> _AgentRuns:
            found_s = drawn_together(runs.expected_s, typical_s[runs.service], exponent)
            return runs._replace(expected_s=found_s)

        plain = _errors(some, left_out, shape, alike)
        return plain, _errors(together(some), together(left_out), shape, alike)

    return _exponent(runs, shape) if forecasts_better(len(runs.node), errors) else None


def _exponent(runs: _AgentRuns, shape: tuple[int, int]) -> tuple[float, np.ndarray]:
    """The exponent, and the typical requests of services."""
    asked = np.log(runs.expected_s)
    count = np.bincount(runs.service, minlength=shape[0])
    mean = np.bincount(runs.service, asked, shape[0]) / np.maximum(count, 1)
    typical = np.where(count > 0, mean, asked.mean())
    beyond, exponent = asked - typical[runs.service], 1.0
    for _ in range(_STEPS):
        expected_s = np.exp(typical[runs.service] + exponent * beyond)
        so_far = runs._replace(expected_s=expected_s)
        left = _residual(so_far, so_far, shape, np.ones((shape[0], 1)))
        exponent += float(np.sum(left * beyond) / max(np.sum(beyond**2), 1e-9))
        exponent = min(max(exponent, LEAST_EXPONENT), 1.0)
    return exponent, np.exp(typical)


def _fit(runs: _AgentRuns, shape: tuple[int, int], sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """[services, agents + 1] factors, and the part of each run in its own; 1 and 0 of the others."""
    num_services, num_agents = sizes
    effect, part = np.zeros((2, num_services, num_agents + 1))
    for _ in range(2):
        left = _residual(runs, runs, shape, np.exp(effect)) + effect[runs.service, runs.agent]
        of_agent, part_of_agent = _shrunk(left, runs.agent, num_agents + 1)
        left = left - of_agent[runs.agent]
        group = runs.service * (num_agents + 1) + runs.agent
        of_pair, part_of_pair = _shrunk(left, group, num_services * (num_agents + 1))
        effect = of_agent + of_pair.reshape(effect.shape)
        # Of what is left for a pair its run takes away the agent's part of each of the pair's runs
        count = np.bincount(group, minlength=effect.size).reshape(effect.shape)
        part = part_of_agent + (1.0 - count * part_of_agent) * part_of_pair.reshape(effect.shape)
        effect[:, -1], part[:, -1] = 0.0, 0.0
    return np.exp(effect), part


def _shrunk(values: np.ndarray, group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """[groups] `shrunk_means`, and the part of one value in that of its group."""
    mean, _ = shrunk_means(values, group, num_groups)
    total = np.bincount(group, values, num_groups)
    return mean, np.divide(mean, total, out=np.zeros(num_groups), where=total != 0.0)


def _errors(fitted: _AgentRuns, held: _AgentRuns, shape: tuple[int, int], factor: np.ndarray) -> np.ndarray:
    """[held rows] squared errors of the logarithm of run times, by tables of other rows."""
    return np.asarray(_residual(fitted, held, shape, factor) ** 2)


def _residual(fitted: _AgentRuns, held: _AgentRuns, shape: tuple[int, int], factor: np.ndarray) -> np.ndarray:
    """[held rows] log(run / expected), what the tables of the fitted rows say of service and node taken off."""
    expected_s = fitted.expected_s * factor[fitted.service, fitted.agent]
    ratio = run_ratios(fitted.service, fitted.node, fitted.run_s, expected_s, shape).ratio
    usual_s = held.expected_s * factor[held.service, held.agent] * ratio[held.service, held.node]
    return np.asarray(np.log(held.run_s / usual_s))
