"""Pairs of dispatcher and orchestrator as judges of the user's get them, and the days that they judge."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from evaluation.baselines import BASELINES, ORCHESTRATION_BASELINES
from evaluation.comparison.comparison import Comparison
from evaluation.judges.user_judges import JudgedDays, days_of_shifts
from evaluation.problems.orchestration.bench import Entrants, Pair
from evaluation.problems.orchestration.pairs import PairProgram, pair_program
from logs_schema import Archive
from twin.contracts import Array
from twin.orchestration.chance import Chance
from twin.orchestration.counts import Counts
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.encode import SlotRows, read_rows
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrator import Orchestrate


class Sides(NamedTuple):
    """Both sides of every pair on a cluster: each dispatcher once, an orchestrator for each pair."""

    dispatch: dict[str, Dispatch]
    orchestrate: dict[Pair, Orchestrate]


def sides_of(edge: EdgeCloud, frames: FrameConfig, pairs: Sequence[Pair], own: Entrants) -> Sides:
    """The dispatchers and orchestrators of some pairs; `own` are policies beside the baselines."""
    named = {one.name: one for one in BASELINES}
    dispatch = {
        name: own.dispatch[name](edge)
        if name in own.dispatch
        else observing(edge, named[name].policy(edge.cluster))
        for name in dict.fromkeys(pair.dispatch for pair in pairs)
    }
    scaling = {one.name: one for one in ORCHESTRATION_BASELINES}
    rules = {
        pair: own.orchestration[pair.orchestration](edge, frames, dispatch[pair.dispatch])
        if pair.orchestration in own.orchestration
        else scaling[pair.orchestration].rule(edge, frames)
        for pair in pairs
    }
    return Sides(dispatch, rules)


class JudgedPair(NamedTuple):
    """A policy by slots, on the cluster of the twin.

    Attributes:
        edge, frames: The cluster, and how often replicas change.
        dispatch: (key, `SlotState`, legal [nodes, seats, *streams]) -> nodes [seats, *streams].
        orchestrate: (key, `FrameState`) -> `Scaling`.
        play: (key, chance, number of frames, number of runs) -> totals [runs] of a day's first frames under a model of
            arrivals, runs, ways and failures. With one chance all pairs share one compiled program.
    """

    edge: EdgeCloud
    frames: FrameConfig
    dispatch: Dispatch
    orchestrate: Orchestrate
    play: Callable[[Array, Chance, int, int], Counts]


def judged_pairs(
    fitted: FittedCluster, names: Mapping[Pair, str], own: Entrants
) -> dict[str, list[JudgedPair]]:
    """Name -> the pair; it has no seeds."""
    edge, frames = fitted.edge, fitted.frames
    sides = sides_of(edge, frames, list(names), own)
    programs: dict[tuple[int, int, int], tuple[Chance, PairProgram]] = {}  # the chance stays, so its id does

    def program(chance: Chance, num_frames: int, num_runs: int) -> PairProgram:
        key = id(chance), num_frames, num_runs
        if key not in programs:
            both = list(sides.dispatch.values()), list(sides.orchestrate.values())
            programs[key] = chance, pair_program(edge, chance, frames, *both, num_frames, (num_runs,))
        return programs[key][1]

    def player(pair: Pair) -> Callable[[Array, Chance, int, int], Counts]:
        kinds = list(sides.dispatch).index(pair.dispatch), list(sides.orchestrate).index(pair)
        late_s = jnp.float32(own.delay_s.get(pair.dispatch, 0.0))
        return lambda key, chance, num_frames, num_runs: program(chance, num_frames, num_runs)(
            key, *map(jnp.int32, kinds), late_s
        )

    return {
        name: [JudgedPair(edge, frames, sides.dispatch[pair.dispatch], sides.orchestrate[pair], player(pair))]
        for pair, name in names.items()
    }


def judged_days(
    archive: Archive, comparison: Comparison, fitted: FittedCluster, seed: int
) -> list[JudgedDays]:
    """The days of every shift for judges of the user's; their history is a `SlotRows`."""

    def history(days: Sequence[dt.date]) -> SlotRows:
        return read_rows(archive, days, fitted.edge.cluster)

    return days_of_shifts(archive, fitted, comparison, seed, history)
