"""A synthetic log: generated requests, a policy's decisions, outcomes from the twin, written as an archive.

Day after day requests are drawn from the population, cut into pieces of `PIECE` requests and simulated; every piece
begins with the requests in flight at the end of the one before. A day is simulated by one member of the ensemble, the
next day by the next one, so that the log contains the twin's uncertainty. Names of agents are new every day.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.baselines import BASELINES
from evaluation.problems.placement.steps import POPULATION
from evaluation.simulator.calendar_days import validate_days
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.calendar import DAY
from logs_schema.casting import with_columns
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.distributions import sample
from offline_rl.networks import example_in
from offline_rl.recipes.cloning import fit_clone
from offline_rl.recipes.config import NETWORKS, TrainingConfig
from twin.contracts import Array, Policy, PyTree
from twin.placement.encode import cut_windows, encode_rows
from twin.placement.history import answered_environment, replay_log
from twin.placement.learned import learned_answers
from twin.placement.model import PlacementTwin
from twin.placement.tides import drawn_tide
from twin.placement.types import REJECTED, STATUS_NAMES, Cluster
from twin.placement.windows import Windows, pad_windows
from twin.population import WorkloadModel, load_workload_model
from twin.population.days import draw_requests
from twin.rollout import rollout

PIECE = 512
MOST_BEFORE = 1 << 15
"""Requests that ended before a piece and are looked at for what they tell of run times, start-ups and agents."""
CLONE = "clone"
Play = Callable[[Array, int, Windows], tuple[np.ndarray, ...]]
"""(key, member, window) -> node, start_s, finish_s, status, each [PIECE], on the window's clock."""


@dataclass(frozen=True)
class GeneratedReport:
    """What was written, requests by outcome."""

    archive: str
    policy: str
    population: str
    seed: int
    first_day: str
    num_days: int
    num_requests: int
    num_rejected: int
    num_unsettled: int


class _Source(NamedTuple):
    """What days are made of."""

    twin: PlacementTwin
    workload: WorkloadModel
    play: Play


def generate_log(
    twin_path: Path,
    num_days: int,
    out: Path,
    progress: Progress,
    *,
    policy: str = CLONE,
    seed: int = 0,
    first_day: dt.date | None = None,
    replace: bool = False,
    training: TrainingConfig | None = None,
) -> GeneratedReport:
    """Writes days of a synthetic log.

    Args:
        twin_path: A twin with a population.
        num_days: Number of days, 1 or more.
        out: Folder of the archive.
        progress: Progress display.
        policy: The deciding policy: "clone" (of the logged behaviour, fitted here) or the name of a baseline.
        seed: Random seed; the same arguments give the same rows.
        first_day: Date of the first day; the day after training if None.
        replace: Whether an existing archive may be replaced.
        training: Configuration of the clone's fit.

    Raises:
        ConfigError: No days, days beyond the calendar, or an unknown policy.
        ProductError: This is no twin, or one without a population; `out` is taken.
    """
    manifest = read_manifest(twin_path, "twin")
    twin, workload = PlacementTwin.load(twin_path), load_workload_model(twin_path / POPULATION)
    first_day = max(twin.encoding.train_days) + DAY if first_day is None else first_day
    validate_days(first_day, num_days, "generate")
    key = jax.random.key(seed)
    decider = _decider(jax.random.fold_in(key, 0), twin, policy, training or TrainingConfig(), progress)
    source = _Source(twin, workload, _player(twin, decider))
    facts = describe(
        "generated",
        clock=ABSOLUTE_CLOCK,
        notes=_notes(workload, policy),
        generated={"twin": manifest.content_hash, "policy": policy, "seed": seed},
    )
    counts, earlier = np.zeros(3, np.int64), None
    with (
        ArchiveWriter(out, source={"twin": manifest.content_hash}, facts=facts, replace=replace) as archive,
        progress.stage("generate", total=num_days, unit="days") as stage,
    ):
        archive.write("nodes", _nodes_table(twin.encoding.cluster), source="twin")
        for number in range(num_days):
            rows = _day(
                jax.random.fold_in(key, 1 + number), source, first_day + number * DAY, number, earlier
            )
            if len(rows):
                archive.write("requests", rows, source="twin", first_row=int(counts[0]) + 1)
            lost = pc.sum(pc.equal(pc.cast(rows["status"], pa.string()), "unknown")).as_py() or 0
            refused = pc.sum(pc.invert(rows["accepted"])).as_py() or 0
            counts += [len(rows), refused, lost]
            earlier = _unfinished(rows, earlier, first_day + (number + 1) * DAY)
            stage(number + 1.0)
    num_requests, num_rejected, num_unsettled = (int(count) for count in counts)
    return GeneratedReport(
        str(Path(out).absolute()), policy, workload.facts["kind"], seed, first_day.isoformat(), num_days,
        num_requests, num_rejected, num_unsettled,
    )  # fmt: skip


def _decider(
    key: Array, twin: PlacementTwin, name: str, config: TrainingConfig, progress: Progress
) -> Policy:
    cluster = twin.encoding.cluster
    named = {one.name: one for one in BASELINES if one.applies(cluster)}
    wanted = name.lower().replace("-", "_")
    if wanted in named:
        return named[wanted].policy(cluster)
    if wanted != CLONE:
        raise ConfigError(
            f"there is no policy {name!r} for this cluster",
            where="generate",
            allowed=", ".join((CLONE, *named)),
        )
    if cluster.num_nodes < 2:
        return lambda _key, _observation, legal: jnp.zeros(legal.shape[1:], jnp.int32)
    history = replay_log(twin.disjoint_windows(), twin.encoding)
    example = example_in(history)
    network = NETWORKS[config.network](example)
    with progress.stage("clone", total=config.clone_updates, unit="updates") as stage:
        params, _ = fit_clone(
            key, history, example, network, config.clone_updates, config.clone_streams, config.held_out, stage
        )
    return lambda key, observation, legal: sample(key, network.logits(params, observation, legal))


def _player(twin: PlacementTwin, policy: Policy) -> Play:
    encoding = twin.encoding

    @jax.jit
    def run(key: Array, windows: Windows, model: PyTree) -> tuple[Array, ...]:
        answers = learned_answers(encoding, twin.config, model)
        system = answered_environment(windows, encoding, answers)
        episodes = rollout(key, system, policy, PIECE, (1,))
        found = (
            episodes.action,
            episodes.outcome.start_s,
            episodes.outcome.finish_s,
            episodes.outcome.status,
        )
        return tuple(leaf[:, 0, 0] for leaf in found)

    def play(key: Array, member: int, windows: Windows) -> tuple[np.ndarray, ...]:
        alone = jax.tree.map(lambda leaf: leaf[member : member + 1], twin.model.parameters)
        padded = pad_windows(windows, PIECE, 1)
        return tuple(np.asarray(leaf) for leaf in run(key, padded, twin.model._replace(parameters=alone)))

    return play


def _day(key: Array, source: _Source, day: dt.date, number: int, earlier: pa.Table | None) -> pa.Table:
    """The requests of a day with decisions and outcomes."""
    key_rows, key_play = jax.random.split(key)
    rows = _undecided(draw_requests(key_rows, source.workload, day), source.twin.encoding.cluster)
    tide, of_nodes = _tides(jax.random.fold_in(key, 2), source.twin.encoding.cluster, rows)
    before, done = rows.slice(0, 0) if earlier is None else earlier, [rows.slice(0, 0)]
    for piece, begin in enumerate(range(0, len(rows), PIECE)):
        part = rows.slice(begin, PIECE)
        before = _that_matter(before, part["arrival"][0])
        encoded = encode_rows(
            pa.concat_tables([before, part]).unify_dictionaries(), source.twin.encoding, np.inf
        )
        wanted = np.arange(encoded.num_rows) >= len(before)
        windows = cut_windows(encoded, wanted, source.twin.encoding, num_steps=PIECE)
        place = np.clip(windows.row - len(before), 0, len(part) - 1)
        on_nodes = None if of_nodes is None else of_nodes[:, begin + place]
        windows = windows._replace(
            request=windows.request._replace(tide=tide[begin + place], node_tide=on_nodes)
        )
        member = number % source.twin.config.num_members
        episodes = source.play(jax.random.fold_in(key_play, piece), member, windows)
        done.append(_settled(part, episodes, float(windows.origin_s[0]), source.twin.encoding.cluster))
        before = pa.concat_tables([before, done[-1]]).unify_dictionaries()
    return pa.concat_tables(done)


def _that_matter(before: pa.Table, begins: pa.Scalar) -> pa.Table:
    """Of the requests before a piece the last `MOST_BEFORE`, and all others that may still be in flight.

    What those that ended longer ago tell of nodes, services and agents is not looked up again: a day takes time by its
    requests, not by their square.
    """
    num_old = len(before) - MOST_BEFORE
    if num_old <= 0:
        return before
    old = before.slice(0, num_old)
    lost = pc.equal(pc.cast(old["status"], pa.string()), "unknown")
    lasting = pc.or_(pc.fill_null(pc.greater_equal(old["finish"], begins), False), lost)
    return pa.concat_tables([old.filter(lasting), before.slice(num_old)])


def _tides(key: Array, cluster: Cluster, rows: pa.Table) -> tuple[np.ndarray, np.ndarray | None]:
    """The tides of run times at requests that nobody has run, everywhere [rows] and of every node [nodes, rows]."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    arrival_s = 1e-6 * pc.cast(rows["arrival"], pa.int64()).to_numpy()
    tide = drawn_tide(generator, cluster.tide, arrival_s)
    if not cluster.node_tide.variance:
        return tide, None
    return tide, np.stack([drawn_tide(generator, cluster.node_tide, arrival_s) for _ in cluster.node_names])


def _undecided(rows: pa.Table, cluster: Cluster) -> pa.Table:
    """Rows that wait to be decided, which the encoding does not leave out."""
    name = cluster.node_names[0]
    return with_columns(rows, {"offered_node": [name] * len(rows), "status": ["waiting"] * len(rows)})


def _settled(rows: pa.Table, episodes: tuple[np.ndarray, ...], origin_s: float, cluster: Cluster) -> pa.Table:
    node, start_s, finish_s, status = (leaf[: len(rows)] for leaf in episodes)
    known = np.isin(status, list(STATUS_NAMES)) & (np.isfinite(finish_s) | (status == REJECTED))
    names = [cluster.node_names[place] for place in node]
    accepted = status != REJECTED
    began = known & accepted & np.isfinite(start_s)
    arrival_us = pc.cast(rows["arrival"], pa.int64()).to_numpy()
    start_us, finish_us = (
        np.round((np.where(known & np.isfinite(leaf), leaf, 0.0).astype(float) + origin_s) * 1e6).astype(
            np.int64
        )
        for leaf in (start_s, finish_s)
    )
    start_us = np.maximum(start_us, arrival_us)  # the clock of a program is coarser than that of the archive
    finish_us = np.maximum(finish_us, np.where(began, start_us, arrival_us))
    ends = known & accepted & np.isfinite(finish_s)
    return with_columns(
        rows,
        {
            "decided": rows["arrival"],
            "offered_node": names,
            "accepted": accepted,
            "start": pa.array(start_us, mask=~began),
            "finish": pa.array(finish_us, mask=~ends),
            "status": [
                STATUS_NAMES[int(code)] if sure else "unknown"
                for code, sure in zip(status, known, strict=True)
            ],
            "ran_node": [name if ran else None for name, ran in zip(names, began, strict=True)],
        },
    )


def _unfinished(rows: pa.Table, earlier: pa.Table | None, midnight: dt.date) -> pa.Table:
    """Rows that are still in the system when the next day begins."""
    whole = rows if earlier is None else pa.concat_tables([earlier, rows])
    begins = pa.scalar(dt.datetime.combine(midnight, dt.time(), dt.UTC), whole["finish"].type)
    return whole.filter(pc.fill_null(pc.greater_equal(whole["finish"], begins), False))


def _nodes_table(cluster: Cluster) -> pa.Table:
    """What decisions can name, as the archive's `nodes`: classes of machines as one virtual machine each."""
    num_sites = len({int(site) for site in cluster.site_of_node})
    plain = "pool" if num_sites == 1 and not cluster.is_cloud.any() else "edge"
    cores, memory, gpus = np.where(np.isfinite(cluster.capacity), cluster.capacity, np.nan)
    table = {
        "node_id": list(cluster.node_names),
        "node_class": list(cluster.node_names),
        "site": [cluster.sites[site] for site in cluster.site_of_node],
        "tier": ["cloud" if cloud else plain for cloud in cluster.is_cloud],
        "cpu_cores": cores,
        "memory_gib": memory,
        "gpus": gpus,
        "virtual": list(np.any(cluster.capacity != cluster.unit_capacity, axis=0)),
    }
    return pa.table({name: pa.array(column, from_pandas=True) for name, column in table.items()})


def _notes(workload: WorkloadModel, policy: str) -> list[str]:
    who = "the clone of the logged behaviour" if policy == CLONE else policy
    return [
        f"Generated by a twin, under {who}; the requests are synthetic.",
        "An agent has a name for one day, and its requests lie in one part of the day.",
        *([workload.facts["fallback"]] if "fallback" in workload.facts else []),
    ]
