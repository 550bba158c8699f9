"""The certificate of a twin of slot mode: its forecasts of held-out days, and its closed loop beside the log."""

import datetime as dt
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, about_zero
from evaluation.comparison.bootstrap import Statistic, mean_over_units, ratio_over_units
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.environment import environment
from twin.orchestration.behaviour import (
    DispatchClone,
    cloned_dispatch,
    fit_clone,
    logged_changes,
    logged_orchestration,
)
from twin.orchestration.counts import Counts
from twin.orchestration.encode import ReplicaRows, SlotRows, read_replicas, read_rows
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_mechanics import dispatched_slot
from twin.orchestration.learned import learned_chance
from twin.orchestration.mechanics import slot_response
from twin.orchestration.slots import slot_problem
from twin.placement.types import COMPLETED

ABOUT = {
    "arrivals": "Requests of held-out days, over what the twin expects of every service and part of the day.",
    "runs": "Run times on held-out days, over what the twin expects of the same service and node.",
    "ways": "Slots until a request that finds its node empty begins to be served.",
    "closed_loop": "The twin under the logged behaviour, beside the log.",
}
PARTS = 8
"""Parts of the day by which arrivals are held against their forecast."""
NUM_RUNS = 4
"""Times that the twin runs a day."""


def certify_twin(
    fitted: FittedCluster,
    archive: Archive,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date],
    config: CertifyConfig,
    twin_hash: str,
    keep: Unfinished = NOTHING_KEPT,
) -> Certificate:
    """Holds a twin against held-out days; every day of its closed loop is a unit of `keep`.

    Raises:
        ConfigError: There is no held-out day.
    """
    if not days:
        raise ConfigError(
            "the archive has no day after training to certify on",
            where=str(archive.path),
            allowed="at least one later day",
            advice="log more days, or fit on fewer",
        )
    rows = read_rows(archive, days, fitted.edge.cluster)
    lines = [
        *_arrivals(fitted, rows, len(days), config),
        *_runs(fitted, rows, len(days), config),
        *_closed_loop(fitted, archive, days, rows, config, keep),
    ]
    return certificate_of(
        lines, ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash, train_days=train_days, days=days,
        num_requests=len(rows.day),
    )  # fmt: skip


def _arrivals(fitted: FittedCluster, rows: SlotRows, num_days: int, config: CertifyConfig) -> list[Line]:
    """All requests, and the share of requests that are of another service or part of the day than forecast."""
    tables, limits = fitted.tables, config.thresholds
    expected = tables.rate_per_s.sum(axis=2) * tables.bin_s  # [bins, services]
    part = np.minimum((rows.arrival_s / float(tables.day_s) * PARTS).astype(int), PARTS - 1)
    shape = (num_days, PARTS, expected.shape[1])
    counts = np.zeros(shape)
    np.add.at(counts, (rows.day, part, rows.service), 1.0)
    forecast = expected.reshape(PARTS, -1, expected.shape[1]).sum(axis=1)

    def total(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return (weights @ counts.sum(axis=(1, 2))) / (weights.sum(axis=-1) * forecast.sum()) - 1.0

    def moved(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            mean = np.tensordot(weights, counts, axes=1) / weights.sum(axis=-1)[..., None, None]
            share, wanted = mean / mean.sum(axis=(-2, -1), keepdims=True), forecast / forecast.sum()
        return 0.5 * np.abs(share - wanted).sum(axis=(-2, -1))

    intervals = config.intervals()
    return [
        about_zero("arrivals", "requests of a day, off by", "share", total, num_days, limits.arrivals, intervals,
                   deciding=True),
        about_zero("arrivals", "of another service or part of the day", "share", moved, num_days,
                   limits.arrivals, intervals, one_sided=True),
    ]  # fmt: skip


def _runs(fitted: FittedCluster, rows: SlotRows, num_days: int, config: CertifyConfig) -> list[Line]:
    """Runs that ended well before their deadline could cut them, over their forecast median; and their spread."""
    tables, limits = fitted.tables, config.thresholds
    median = rows.requested_run_s * np.exp(tables.log_ratio[rows.service, np.maximum(rows.node, 0)])
    low, high = np.exp(np.quantile(tables.scatter, [0.05, 0.95]))
    room_s = rows.deadline_s - (rows.start_s - rows.arrival_s)
    with np.errstate(invalid="ignore"):
        fair = (rows.node >= 0) & np.isfinite(rows.start_s) & (room_s > 1.2 * high * median) & (median > 0.0)
        fair &= rows.status == COMPLETED
        ratio = np.log((rows.finish_s - rows.start_s) / median)
    intervals = config.intervals()
    lines = []
    for node, name in enumerate(fitted.edge.cluster.node_names):
        mine = fair & (rows.node == node)
        if mine.sum() < 50:
            continue
        bias = _mean(rows.day, ratio - float(np.mean(tables.scatter)), mine, num_days)
        lines.append(
            about_zero("runs", f"log of runs on {name}, off by", "nats", bias, num_days, limits.run_bias_by_node,
                       intervals)
        )  # fmt: skip
    within = (ratio > np.log(low)) & (ratio < np.log(high))
    covered = _mean(rows.day, within - 0.9, fair, num_days)
    lines.append(
        about_zero("runs", "coverage of 90 % intervals, off by", "share", covered, num_days, limits.coverage,
                   intervals, deciding=True)
    )  # fmt: skip
    return lines


def _closed_loop(
    fitted: FittedCluster,
    archive: Archive,
    days: Sequence[dt.date],
    rows: SlotRows,
    config: CertifyConfig,
    keep: Unfinished,
) -> list[Line]:
    """The twin under the cloned dispatcher and the logged changes, beside the log of the same days."""
    replicas = read_replicas(archive, days, fitted.edge.cluster)
    clone = fit_clone(fitted.edge, rows, replicas, config.seed)
    found = closed_loop(fitted, clone, replicas, len(days), config.seed, keep)
    by_day = np.stack(
        [
            np.bincount(rows.day, value, len(days))
            for value in (np.ones(len(rows.day)), rows.on_time, rows.node < 0)
        ]
    )
    lines = []
    names = ("share on time, off by", "share never sent, off by")
    for index, (name, limit) in enumerate(zip(names, (True, False), strict=True)):
        logged = by_day[index + 1] / by_day[0]
        off = np.array([one[index] for one in found]) - logged
        lines.append(
            about_zero("closed_loop", name, "share", mean_over_units(off), len(days), config.thresholds.behaviour_value,
                       config.intervals(), deciding=limit)
        )  # fmt: skip
    return lines


def closed_loop(
    fitted: FittedCluster,
    clone: DispatchClone,
    replicas: ReplicaRows,
    num_days: int,
    seed: int,
    keep: Unfinished = NOTHING_KEPT,
) -> list[tuple[float, float]]:
    """Day by day, shares of what arrived that were on time, and never sent, in runs of the twin.

    Args:
        fitted: The twin.
        clone: Who dispatches.
        replicas: Deployments of the days; their changes are made again.
        num_days: How many days.
        seed: Of everything drawn.
        keep: Finished days.
    """
    edge = fitted.edge
    num_slots = int(np.ceil(float(fitted.tables.day_s) / edge.config.slot_s))
    num_frames = -(-num_slots // edge.config.slots_per_frame)
    tables = [logged_changes(edge, replicas, day, num_frames) for day in range(num_days)]
    most = max(table.shape[1] for table in tables)
    dispatch, problem = cloned_dispatch(edge, clone), slot_problem(edge)

    @jax.jit
    def run(key: Array, table: Array) -> Counts:  # one program for all days
        rule = logged_orchestration(edge, table)
        system = environment(problem, slot_response(edge, learned_chance(edge, fitted.tables), rule))
        slot = dispatched_slot(system, problem, dispatch)
        key_reset, key_slots = jax.random.split(key)
        keys = jax.random.split(key_slots, num_slots)
        counts: Counts = jax.lax.scan(slot, system.reset(key_reset, (NUM_RUNS,)), keys)[0].problem.view.counts
        return counts

    def shares(table: np.ndarray) -> tuple[float, float]:
        padded = np.pad(table, ((0, 0), (0, most - table.shape[1]), (0, 0)))
        counts = run(jax.random.key(seed), jnp.asarray(padded))
        arrived = float(jnp.sum(counts.arrived))
        never = float(jnp.sum(counts.turned_away) + jnp.sum(counts.dropped_waiting))
        return float(jnp.sum(counts.on_time)) / arrived, never / arrived

    found = (
        keep.tree(f"closed loop {day}", partial(shares, table), lambda: (0.0, 0.0))
        for day, table in enumerate(tables)
    )
    return [(float(on_time), float(never)) for on_time, never in found]


def _mean(day: np.ndarray, value: np.ndarray, where: np.ndarray, num_days: int) -> Statistic:
    """The mean of some rows as a function of the days' weights."""
    above = np.bincount(day, np.where(where, value, 0.0), num_days)
    return ratio_over_units(above, np.bincount(day, where.astype(float), num_days))
