"""Schedulers of many requests at once from the edges of a log: rounds are drawn, networks trained and compared."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from logs_schema.records import from_plain
from offline_rl.assignment.assigner import SEARCH, Assigner, AssignerSetting, read_setting, write_setting
from offline_rl.assignment.config import INTERVAL_SHARE, QUICK_LEARNING, ROUND_REQUESTS, AssignConfig
from offline_rl.assignment.export import export_assigner
from offline_rl.assignment.known_edges import KnownEdge, KnownEdges
from offline_rl.assignment.layers import Params
from offline_rl.assignment.learning import train_priced
from offline_rl.assignment.rungs import NETWORK, SEARCHED, climb
from offline_rl.bundle import read_arrays
from twin.arrays import kept_arrays, save_arrays
from twin.assignment.from_logs import EdgesFromLog
from twin.assignment.log_rounds import MAX_EDGES, LogRounds, LogRoundsConfig
from twin.assignment.persistence import load_edges, save_edges
from twin.assignment.ran_requests import SIZES
from twin.nested import nested

HELD_OUT_SEED = 0xA551
BACKLOG_SHARE = 0.35
"""Earlier requests of an edge at most, over its share of the round: CoRaiS's 7 of 20. With more of them the busiest
edge alone decides when the last answer comes, and nothing can be learned."""


def quick(config: AssignConfig) -> AssignConfig:
    """A first look: hardly trained, on small rounds."""
    num_requests = ROUND_REQUESTS[0] if config.num_requests is None else min(config.num_requests, 30)
    return replace(config, num_requests=num_requests, learning=QUICK_LEARNING, num_held_out=8, search_s=0.02)


def interval_of(edges: EdgesFromLog, config: AssignConfig) -> float:
    """Seconds between rounds."""
    return config.interval_s or INTERVAL_SHARE * edges.mean_s


def rounds_of(edges: EdgesFromLog, config: AssignConfig) -> LogRounds:
    """What rounds are drawn by; ConfigError where the log has fewer edges than a round needs."""
    usual = int(np.clip(edges.per_s * interval_of(edges, config), *ROUND_REQUESTS))
    number = usual if config.num_requests is None else config.num_requests
    num_edges = config.num_edges or min(len(edges.names), MAX_EDGES)
    backlogs = (0, int(np.clip(BACKLOG_SHARE * number / num_edges, 1, LogRoundsConfig().backlogs[1])))
    return LogRounds(edges, LogRoundsConfig(number, config.num_edges, backlogs))


def build_policy(
    out: Path,
    edges: EdgesFromLog,
    config: AssignConfig,
    seed: int,
    progress: Progress,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Trains a network for every seed, climbs the ladder, writes all of it into `out`; facts of the product.

    Args:
        out: Folder to write into.
        edges: The twin.
        config: How.
        seed: Of everything drawn; networks have `1000 * seed` and their own.
        progress: Where to show how far it is.
        keep: Folder that saves what is done; a second call goes on from there.
    """
    rounds, seeds = rounds_of(edges, config), [1000 * seed + one for one in config.seeds]
    setting = AssignerSetting(
        rounds.config.num_requests,
        rounds.num_edges,
        trained_on={
            "size": edges.size,
            "num_rows": edges.num_rows,
            "notes": list(edges.notes),
            "backlogs": list(rounds.config.backlogs),
            "ways": list(rounds.config.ways),
        },
        edges=known_edges(edges),
    )
    save_edges(out, edges)
    write_setting(out, setting)
    assigners: dict[str, Assigner] = {}
    with progress.stage("networks", unit="updates") as stage:
        for one in seeds:
            train = partial(train_priced, one, rounds.draw, config.learning, stage, keep)
            params = kept_arrays(keep and keep / _file(one), train)
            save_network(out, one, params)
            assigners[f"{NETWORK}-{one}"] = Assigner(setting, params)
    with progress.stage("ladder"):
        held_out = rounds.draw(np.random.default_rng([seed, HELD_OUT_SEED]), config.num_held_out)
        chosen, rungs = climb(assigners, held_out, config.search_s, config.level)
    return {
        "chosen": chosen, "tried": {name: asdict(rung) for name, rung in rungs.items()}, "level": config.level,
        "search_s": config.search_s, "num_requests": setting.num_requests, "num_edges": setting.num_edges,
        "seeds": seeds, "rounds": asdict(rounds.config), "learning": asdict(config.learning), "seed": seed,
    }  # fmt: skip


def known_edges(edges: EdgesFromLog) -> KnownEdges:
    """What a bundle keeps of a twin's edges; nothing where their computing times are not over the inputs' sizes."""
    if edges.size != SIZES[0]:
        return KnownEdges()
    found = {
        name: KnownEdge(
            edges.sites.get(name, ""),
            edges.replicas[name],
            one.kind,
            one.coefficients,
            one.sizes,
            one.seconds,
        )
        for name, one in edges.compute.items()
    }
    latency_s, s_per_mib = (
        {
            here: {there: float(getattr(way, which)) for there, way in ways.items()}
            for here, ways in edges.ways.items()
        }
        for which in ("latency_s", "s_per_mib")
    )
    return KnownEdges(found, latency_s, s_per_mib)


def save_network(folder: Path, seed: int, params: Params) -> None:
    """Writes the network that a seed trained."""
    save_arrays(folder / _file(seed), params)


def read_network(folder: Path, seed: int) -> Params:
    """The network that a seed trained; ProductError where there is none."""
    return nested(read_arrays(folder / _file(seed)))


def assigner_of(folder: Path, name: str) -> Assigner:
    """A scheduler of a training, by its name on the ladder."""
    setting = read_setting(folder)
    if name == SEARCHED:
        return Assigner(replace(setting, network=SEARCH), {})
    return Assigner(setting, read_network(folder, int(name.rsplit("-", 1)[1])))


def export_policy(
    out: Path,
    folder: Path,
    trained: Mapping[str, Any],
    name: str,
    *,
    made_from: Mapping[str, str],
    extra: dict[str, Any],
    replace_bundle: bool,
) -> None:
    """Writes one of a training's schedulers as a bundle.

    Args:
        out: Folder of the bundle.
        folder: Of the training.
        trained: Its facts, see `build_policy`.
        name: On its ladder.
        made_from: Name -> content hash.
        extra: Facts of the bundle's manifest.
        replace_bundle: Whether an older bundle may be replaced.

    Raises:
        ConfigError: There is no such scheduler.
    """
    allowed = [SEARCHED, *(f"{NETWORK}-{one}" for one in trained["seeds"])]
    if name not in allowed:
        raise ConfigError(
            f"there is no scheduler {name!r} to export",
            where=str(folder),
            allowed=", ".join(allowed),
            advice="without --policy and --seed the ladder's choice is exported",
        )
    rounds = LogRounds(load_edges(folder), from_plain(LogRoundsConfig, trained["rounds"]))
    setting = read_setting(folder)
    is_network = name != SEARCHED
    seed = int(name.rsplit("-", 1)[1]) if is_network else int(trained["seed"])
    params = read_network(folder, seed) if is_network else {}
    export_assigner(
        params,
        out,
        setting if is_network else replace(setting, network=SEARCH),
        rounds.draw,
        seed=seed,
        made_from=made_from,
        extra=extra,
        replace=replace_bundle,
    )


def _file(seed: int) -> str:
    return f"network-{seed}.npz"
