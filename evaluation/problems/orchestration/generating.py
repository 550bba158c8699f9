"""Days that a twin of slot mode makes up, as an archive in the format of the logs that it was fitted to."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa

from evaluation.baselines import BASELINES, ORCHESTRATION_BASELINES
from evaluation.problems.orchestration.rivals import rivals
from evaluation.simulator.calendar_days import validate_days
from evaluation.simulator.slots.log_tables import cluster_names, replicas_of, requests_of, samples_of
from evaluation.simulator.slots.recording import recorded_day
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.joint import joint_environment
from twin.orchestration.learned import learned_chance
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.persistence import load_fitted
from twin.orchestration.settings import SETTINGS, as_facts

USUAL = "least_loaded+hpa_requests"
SAMPLE_SLOTS = 10
"""Slots between two samples of nodes."""


@dataclass(frozen=True)
class GeneratedSlots:
    """What was written, requests by outcome; requests without a known end are still under way at the day's end."""

    archive: str
    policy: str
    seed: int
    first_day: str
    num_days: int
    num_requests: int
    num_on_time: int
    num_rejected: int
    num_unsettled: int


def generate_slots(
    twin: Path,
    num_days: int,
    out: Path,
    progress: Progress,
    *,
    policy: str | None = None,
    seed: int = 0,
    first_day: dt.date | None = None,
    replace: bool = False,
) -> GeneratedSlots:
    """Writes days that a twin makes up.

    Args:
        twin: Its folder.
        num_days: How many days, 1 or more.
        out: Folder of the archive.
        progress: Where to show how far it is.
        policy: "dispatcher+orchestrator", baselines or what plans with the twin's tables.
        seed: Of everything drawn.
        first_day: Date of the first day; the day after training if None.
        replace: Whether what is already there may be replaced.

    Raises:
        ConfigError: no days, days beyond the calendar, or an unknown policy.
        ProductError: this is no twin; `out` is taken.
    """
    fitted, policy = load_fitted(twin), policy or USUAL
    dispatch, orchestrate = deciding(fitted, policy)
    if first_day is None:
        trained = read_manifest(twin, "twin").extra["train_days"]
        first_day = dt.date.fromisoformat(trained[-1]) + dt.timedelta(days=1)
    validate_days(first_day, num_days, "generate")
    edge, names = fitted.edge, cluster_names(fitted.edge)
    chance = learned_chance(edge, fitted.tables)
    system, slot_s = joint_environment(edge, chance, fitted.frames), edge.config.slot_s
    num_slots = int(np.ceil(float(fitted.tables.day_s) / slot_s))
    run = jax.jit(lambda key: recorded_day(key, edge, chance, system, dispatch, orchestrate, num_slots))
    facts = describe(
        "generated", clock=ABSOLUTE_CLOCK, notes=["Days that a twin made up; nobody asked for them."]
    )
    facts[SETTINGS] = as_facts(edge.config, fitted.frames)
    total = np.zeros(3, np.int64)
    unsettled = 0
    with (
        ArchiveWriter(out, source={}, facts=facts, replace=replace) as archive,
        progress.stage("generate", unit="days") as stage,
    ):
        archive.write("nodes", nodes_of(fitted), source="twin")
        for day in range(num_days):
            rows = jax.tree.map(np.asarray, run(jax.random.fold_in(jax.random.key(seed), day)))
            date = first_day + dt.timedelta(days=day)
            table, counts = requests_of(names, edge.config, rows, date)
            archive.write("requests", table, source="twin", first_row=int(total[0]) + 1)
            archive.write("replicas", replicas_of(names, rows, date, slot_s), source="twin")
            archive.write("node_samples", samples_of(names, rows, date, slot_s, SAMPLE_SLOTS), source="twin")
            total += counts
            unsettled += int(np.sum(np.asarray(table["status"].to_pylist()) == "running"))
            stage(day + 1.0, float(num_days))
    return GeneratedSlots(
        str(out), policy, seed, first_day.isoformat(), num_days, int(total[0]), int(total[1]), 0, unsettled
    )


def deciding(fitted: FittedCluster, policy: str) -> tuple[Dispatch, Orchestrate]:
    """Dispatcher and orchestrator of a name such as "least_loaded+hpa"; ConfigError where there is none."""
    edge, frames, own = fitted.edge, fitted.frames, rivals(fitted)
    dispatchers = {one.name: one for one in BASELINES}
    rules = {one.name: one for one in ORCHESTRATION_BASELINES}
    first, _, second = policy.partition("+")
    known = (first in dispatchers or first in own.dispatch) and (
        second in rules or second in own.orchestration
    )
    if not known:
        raise ConfigError(
            f"there is no policy {policy!r}",
            where="generate --policy",
            allowed=f"DISPATCH+ORCHESTRATION of {', '.join((*dispatchers, *own.dispatch))} and "
            f"{', '.join((*rules, *own.orchestration))}",
        )
    dispatch = (
        own.dispatch[first](edge)
        if first in own.dispatch
        else observing(edge, dispatchers[first].policy(edge.cluster))
    )
    if second in own.orchestration:
        return dispatch, own.orchestration[second](edge, frames, dispatch)
    return dispatch, rules[second].rule(edge, frames)


def nodes_of(fitted: FittedCluster) -> pa.Table:
    """The inventory of the cluster that a twin is of."""
    edge, cluster = fitted.edge, fitted.edge.cluster
    return pa.table(
        {
            "node_id": list(cluster.node_names),
            "site": [cluster.sites[site] for site in cluster.site_of_node],
            "tier": ["cloud" if cloud else "edge" for cloud in cluster.is_cloud],
            "cpu_cores": edge.cores.astype(np.float64),
            "memory_gib": edge.memory_gib.astype(np.float64),
            "virtual": [False] * cluster.num_nodes,
        }
    )
