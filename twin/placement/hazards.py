"""Nodes that lose what runs on them: read off a log as losses per second of running.

    chance that a run fails      = 1 - (1 - failures of its service and queue) * exp(-hazard of the node * usual run)
    chance that a node keeps it  = exp(-hazard of the node * usual run)

A spot node goes with all that runs on it, a flaky one restarts: what runs for long there is likely to be lost. Failures
of a service (wrong inputs, bugs) are as likely on every node. Both are found in turns, each failure being a loss by its
share in what is expected there (EM of a Poisson process; exposure is the time that requests ran, censored ones
included). A node's rate is drawn to its class's, and that to all nodes', by how uncertain it is (empirical Bayes, gamma
priors by moments; C. Morris, Parametric empirical Bayes inference: theory and applications, 1983).

They count only where they forecast failures in left-out stretches of the log better than service, queue and how long a
request takes anywhere, beyond chance (`left_out`: 4 standard errors over 16 stretches; by Student's t an error rate of
.0006). So users whose long runs fail wherever they are do not make nodes unsafe.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from twin.placement.cold_start_fit import RunTables, fit_run_tables
from twin.placement.columns import agent_index, amount, instant_s, outcomes
from twin.placement.cross_validation import clear_gain, halves_in_turn, stretches
from twin.placement.service_times import run_ratios
from twin.placement.timeouts import Timeouts, fit_chance, fit_timeouts, is_cut_off
from twin.placement.types import COMPLETED, FAILED, UNKNOWN
from twin.records import at_rows

FEWEST = 40
"""Failures of a log, at least."""
PRIOR = 20.0
"""Requests' worth of the usual failures that those of a service and queue are drawn to."""
ROUNDS, ROUNDS_IN_WHOLE = 60, 10
_LEAST = 1e-12


class Exposures(NamedTuple):
    """Runs that began, in order of arrival; leaves [rows]."""

    kind: np.ndarray  # index of the service and queue
    node: np.ndarray
    ran_s: np.ndarray  # to the end, or as long as is known
    usual_s: np.ndarray  # how long it should run there
    anywhere_s: np.ndarray  # how long it should run, wherever
    failed: np.ndarray  # bool
    ended: np.ndarray  # bool


class RunLog(NamedTuple):
    """Requests of a log in order of arrival within a stretch; leaves [rows]."""

    arrival_s: np.ndarray
    start_s: np.ndarray  # NaN where not known
    finish_s: np.ndarray  # inf where not known
    status: np.ndarray
    service: np.ndarray
    queue: np.ndarray
    node: np.ndarray  # -1 where none took the request
    run_s: np.ndarray  # NaN where not known
    expected_s: np.ndarray  # anywhere
    stretch: np.ndarray
    agent: np.ndarray  # -1 where hidden
    requested_s: np.ndarray  # NaN where not given

    def tables(self, shape: tuple[int, int]) -> RunTables:
        """How long its runs take."""
        return fit_run_tables(
            self.arrival_s, self.service, self.node, self.run_s, self.expected_s, self.stretch, shape
        )


class _Rates(NamedTuple):
    of_kind: np.ndarray  # [kinds] chance that a run fails wherever it is
    of_node: np.ndarray  # [nodes] losses a second


def survival(hazard: Any, run_s: Any, np: Any = np) -> Any:
    """The chance that a node keeps a run to its end; arrays of any shape, alike. `np`: `jax.numpy` in programs."""
    return np.exp(-hazard * run_s)


def run_log(
    rows: pa.Table,
    until_s: float,
    labels: tuple[np.ndarray, np.ndarray, np.ndarray],
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    stretch: np.ndarray,
) -> RunLog:
    """The runs of requests, known until `until_s`; `labels` are indices of services, scenarios and queues."""
    times = instant_s(rows, "arrival"), instant_s(rows, "start"), *outcomes(rows, until_s)
    asked_s = amount(rows, "requested_run_s", np.nan)
    return RunLog(*times, labels[0], labels[2], node, run_s, expected_s, stretch, agent_index(rows), asked_s)


def without_timeouts(log: RunLog, num_services: int) -> tuple[Timeouts | None, RunLog]:
    """After which time a log's runs are cut off (`fit_timeouts`), and the log as if those had completed then: no node
    has lost them."""
    failed = log.status == FAILED
    found = fit_timeouts(log.service, log.run_s, failed, log.requested_s, num_services)
    if found is None:
        return None, log
    cut_off = is_cut_off(found.limit_s(log.service, log.requested_s), log.run_s, failed)
    return found, log._replace(status=np.where(cut_off, COMPLETED, log.status))


def fit_runs_and_hazards(
    log: RunLog, until_s: float, shape: tuple[int, int], class_of_node: Sequence[object]
) -> tuple[RunTables, tuple[float, ...], Timeouts | None, np.ndarray]:
    """How long a log's runs take, its nodes' hazards (`fit_hazards`), after which time runs are cut off
    (`fit_timeouts`), and its run times [rows]: where nodes lose what runs on them, failed runs were cut short and count
    as unknown.

    Args:
        log: Of the training days.
        until_s: When it was cut.
        shape: Numbers of services and nodes.
        class_of_node: [nodes] what is alike.
    """
    failed, ran_s = log.status == FAILED, log.run_s
    timeouts, log = without_timeouts(log, shape[0])
    if timeouts is not None:
        timeouts, run_s = _in_whole(log, timeouts, failed & (log.status == COMPLETED), shape)
        log = log._replace(run_s=run_s)
    tables = log.tables(shape)
    hazard = fit_hazards(_exposures(log, until_s, tables), class_of_node)
    if hazard:
        log = log._replace(run_s=np.where(log.status == FAILED, np.nan, log.run_s))
        tables = log.tables(shape)
    return tables, hazard, timeouts, np.where(np.isfinite(log.run_s), ran_s, np.nan)


def _in_whole(
    log: RunLog, timeouts: Timeouts, cut_off: np.ndarray, shape: tuple[int, int]
) -> tuple[Timeouts, np.ndarray]:
    """The timeouts with the chance that a run ends before its limit, and run times [rows] of which those that were cut
    off are as long as is expected of them beyond their limits, in turns (EM of censored runs): else slow nodes, where
    more are cut off, look as quick as the limits are short."""
    limit_s = timeouts.limit_s(log.service, log.requested_s)
    known, run_s = (log.node >= 0) & np.isfinite(log.run_s), log.run_s
    for _ in range(ROUNDS_IN_WHOLE):
        ratio = run_ratios(log.service, log.node, run_s, log.expected_s, shape).ratio
        usual_s = np.where(known, log.expected_s * ratio[log.service, log.node], np.nan)
        slope, offset = fit_chance(limit_s, usual_s, cut_off)
        timeouts = replace(timeouts, slope=slope, offset=offset)
        run_s = np.where(cut_off, timeouts.beyond_s(log.run_s, usual_s), log.run_s)
    return timeouts, run_s


def _exposures(log: RunLog, until_s: float, tables: RunTables) -> Exposures:
    ended = np.isin(log.status, (COMPLETED, FAILED))
    begun = (log.start_s <= until_s) & (ended | (log.status == UNKNOWN)) & (log.node >= 0)
    ran_s = np.minimum(log.finish_s, until_s) - log.start_s
    kind = log.service * (int(log.queue.max(initial=0)) + 1) + log.queue
    runs = Exposures(kind, log.node, ran_s, tables.filed_s, log.expected_s, log.status == FAILED, ended)
    runs, service = at_rows(runs, np.flatnonzero(begun)), log.service[begun]
    return runs._replace(usual_s=runs.usual_s * tables.ratios.ratio[service, runs.node])


def fit_hazards(runs: Exposures, class_of_node: Sequence[object]) -> tuple[float, ...]:
    """The hazards of a log's nodes.

    Args:
        runs: In order of arrival.
        class_of_node: [nodes] what is alike.

    Returns:
        Losses per second of running of every node; none where the log does not show them.
    """
    usable = (runs.ran_s >= 0.0) & (runs.usual_s > 0.0) & (runs.anywhere_s > 0.0)
    runs = at_rows(runs, np.flatnonzero(usable))
    ended = at_rows(runs, np.flatnonzero(runs.ended))
    longest_s = np.zeros(int(runs.kind.max(initial=0)) + 1)  # what seems to go on longer has left the log
    np.maximum.at(longest_s, ended.kind, ended.ran_s)
    runs = runs._replace(ran_s=np.minimum(runs.ran_s, longest_s[runs.kind]))
    if min(ended.failed.sum(), (~ended.failed).sum()) < FEWEST:
        return ()
    classes = list(dict.fromkeys(class_of_node))
    of_class = np.array([classes.index(one) for one in class_of_node])
    nowhere = np.zeros(1, int)
    stretch, gains = stretches(len(ended.node)), np.empty(len(ended.node))
    for fitted, held in halves_in_turn(stretch):
        some, left_out = at_rows(ended, fitted), at_rows(ended, held)
        plain = _log_likelihood(_fit(_wherever(some), nowhere), _wherever(left_out))
        gains[held] = _log_likelihood(_fit(some, of_class), left_out) - plain
    if clear_gain(gains, stretch) <= 0.0:
        return ()
    return tuple(_fit(runs, of_class).of_node.tolist())


def _wherever(runs: Exposures) -> Exposures:
    """The runs as if all nodes were one, of usual speed."""
    ran_s = runs.ran_s * runs.anywhere_s / runs.usual_s
    return runs._replace(node=np.zeros_like(runs.node), ran_s=ran_s, usual_s=runs.anywhere_s)


def _fit(runs: Exposures, of_class: np.ndarray) -> _Rates:
    """Failures of kinds and losses of nodes, in turns; each node drawn to its class, each class to all."""
    num_kinds, num_nodes = int(runs.kind.max()) + 1, len(of_class)
    count = np.bincount(runs.kind, runs.ended, num_kinds)
    exposure_s = np.bincount(runs.node, runs.ran_s, num_nodes)
    kind, node, usual_s = (leaf[runs.failed] for leaf in (runs.kind, runs.node, runs.usual_s))
    half = 0.5 * len(kind)
    overall = half / max(count.sum(), 1.0)
    rates = _Rates(
        np.full(num_kinds, overall), np.full(num_nodes, half / max(float(exposure_s.sum()), _LEAST))
    )
    for _ in range(ROUNDS):
        lost = rates.of_node[node] * usual_s
        share = lost / np.maximum(lost + rates.of_kind[kind], _LEAST)
        failures = np.bincount(kind, 1.0 - share, num_kinds)
        overall = float(failures.sum()) / max(float(count.sum()), 1.0)
        of_kind = (failures + PRIOR * overall) / (count + PRIOR)
        rates = _Rates(of_kind, _shrunk(np.bincount(node, share, num_nodes), exposure_s, of_class))
    return rates


def _shrunk(losses: np.ndarray, exposure_s: np.ndarray, of_class: np.ndarray) -> np.ndarray:
    """[nodes] losses a second, those of a node drawn to its class's, and its class's to all."""
    num_classes = int(of_class.max()) + 1
    together, seen_s = (np.bincount(of_class, leaf, num_classes) for leaf in (losses, exposure_s))
    usual = np.full(num_classes, losses.sum() / max(float(exposure_s.sum()), _LEAST))
    return _drawn(losses, exposure_s, _drawn(together, seen_s, usual)[of_class])


def _drawn(losses: np.ndarray, exposure_s: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Rates drawn to usual ones by a gamma prior; its relative variance follows from how far losses are from those
    that usual rates make expected, beyond what chance does (moments)."""
    expected = usual * exposure_s
    beyond = float(np.sum((losses - expected) ** 2 - expected))
    if beyond <= 0.0:
        return usual
    worth = float(np.sum(expected**2)) / beyond  # losses' worth of the usual rate
    return np.asarray((losses + worth) / np.maximum(exposure_s + worth / np.maximum(usual, _LEAST), _LEAST))


def _log_likelihood(rates: _Rates, runs: Exposures) -> np.ndarray:
    """[rows] of whether runs failed."""
    of_kind = np.append(rates.of_kind, np.zeros(max(0, int(runs.kind.max()) + 1 - len(rates.of_kind))))
    kept = (
        np.log1p(-np.clip(of_kind[runs.kind], _LEAST, 1.0 - 1e-3)) - rates.of_node[runs.node] * runs.usual_s
    )
    return np.where(runs.failed, np.log(np.maximum(-np.expm1(kept), _LEAST)), kept)
