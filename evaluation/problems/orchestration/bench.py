"""Scores of dispatch and orchestration in slot mode: whole days of a preset, frame by frame.

The deployment is the one made for day 0, whatever the day: on a later day it no longer fits what is asked for, which is
what orchestration is for. All pairs of policies live the same requests: what is drawn for them does not depend on
decisions. One program is compiled for a day; which policies decide is an argument, and only those are computed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import BASELINES, ORCHESTRATION_BASELINES, gsp_ss_dispatch
from evaluation.comparison.bootstrap import Estimate, IntervalConfig, estimate, ratio_over_units
from evaluation.problems.orchestration.pairs import PairProgram, pair_program
from evaluation.problems.orchestration.references import REFERENCES, reference
from evaluation.simulator.slots import Counts, SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance, deployed_on
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.progress import Stage, unseen
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig, validate_frames
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrator import Orchestrate
from twin.placement.types import Cluster

GSP_SS_NAME = "gsp_ss"
DISPATCHERS = (*(one.name for one in BASELINES), GSP_SS_NAME)
"""Who can dispatch."""
ORCHESTRATORS = (*(one.name for one in ORCHESTRATION_BASELINES), *REFERENCES)
"""Who can orchestrate; the last two know the truth's rates and laws, and say what can be reached."""
STATIC = "static"
MEASURES = ("on_time", "on_time_per_s", "scheduling_mib", "pulled_mib", "energy_j")
"""On-time throughput (KaiS and KMPS, eq. 1: of all requests that arrived) and per second; for each request that
arrived, the scheduling cost of KaiS (inputs forwarded and images pulled), the images' part of it, and energy (KMPS,
fig. 10)."""


class Pair(NamedTuple):
    """Who dispatches and who orchestrates."""

    dispatch: str
    orchestration: str


@dataclass(frozen=True)
class OrchestrationBenchConfig:
    """How much is simulated.

    Attributes:
        num_seeds: Independent repetitions.
        days_per_seed: Times that each plays the day.
        num_frames: Frames after which a day is cut short; without it the whole day.
        seed: Of everything drawn.
        slots, frames: See there.
    """

    num_seeds: int = 5
    days_per_seed: int = 2
    num_frames: int | None = None
    seed: int = 0
    slots: SlotConfig = field(default_factory=SlotConfig)
    frames: FrameConfig = field(default_factory=FrameConfig)

    def __post_init__(self) -> None:
        sizes = (self.num_seeds, self.days_per_seed, 1 if self.num_frames is None else self.num_frames)
        if min(sizes) < 1:
            raise ConfigError(
                f"seeds={sizes[0]}, days_per_seed={sizes[1]}, frames={sizes[2]}",
                where="bench orchestration",
                allowed="whole numbers of at least 1",
                advice="ask for at least one of each",
            )


@dataclass(frozen=True)
class Entrants:
    """Policies of one's own beside the baselines; of equal names they take the reference's place.

    Attributes:
        dispatch: Name -> makes the dispatcher for a cluster.
        orchestration: Name -> makes the orchestrator for a cluster, frames, and who dispatches beside it.
        cluster: Whose vocabulary they speak; the world's own by default.
        delay_s: Dispatcher -> seconds that its decisions come late, where they do.
        indifferent: Orchestrators that do not depend on the dispatcher.
    """

    dispatch: Mapping[str, Callable[[EdgeCloud], Dispatch]] = field(default_factory=dict)
    orchestration: Mapping[str, Callable[[EdgeCloud, FrameConfig, Dispatch], Orchestrate]] = field(
        default_factory=dict
    )
    cluster: Cluster | None = None
    delay_s: Mapping[str, float] = field(default_factory=dict)
    indifferent: frozenset[str] = frozenset()

    def joined(self, others: "Entrants") -> "Entrants":
        """These and others, which take the place of those of equal names; in this vocabulary."""
        return replace(
            self,
            dispatch={**self.dispatch, **others.dispatch},
            orchestration={**self.orchestration, **others.orchestration},
            delay_s={**self.delay_s, **others.delay_s},
            indifferent=self.indifferent | others.indifferent,
        )


NO_ENTRANTS = Entrants()


class PairScore(NamedTuple):
    """What came of a pair on a day."""

    pair: Pair
    day: int
    measures: dict[str, Estimate]
    gain: Estimate  # in on_time, over the same dispatch with the static deployment; paired
    per_run: np.ndarray  # [seeds * days_per_seed] on_time


def default_pairs(
    dispatch: Sequence[str], orchestration: Sequence[str], frozen: str = "least_loaded"
) -> list[Pair]:
    """Every dispatcher with the static deployment, then every orchestrator over the frozen dispatcher."""
    pairs = [Pair(name, STATIC) for name in dispatch]
    pairs += [Pair(frozen, name) for name in orchestration]
    return list(dict.fromkeys(pairs))


def bench_orchestration(
    world: World,
    days: Sequence[int],
    pairs: Sequence[Pair],
    config: OrchestrationBenchConfig | None = None,
    progress: Stage = unseen,
    entrants: Entrants = NO_ENTRANTS,
) -> list[PairScore]:
    """Scores every pair on every day.

    Args:
        world: A validated world; it is scaled in time to the pace of slots.
        days: Days since day 0, >= 0.
        pairs: Who dispatches and who orchestrates; the static deployment under the same dispatch is added as reference.
        config: How much to simulate.
        progress: Called with the number of pairs scored, and what comes next.
        entrants: Policies beside the baselines.

    Returns:
        One score a pair and day.

    Raises:
        ConfigError: an unknown policy, no days, a negative day.
    """
    config = config or OrchestrationBenchConfig()
    validate_pairs(days, pairs, entrants)
    validate_frames(config.slots, config.frames)
    played = list(dict.fromkeys([*(pair._replace(orchestration=STATIC) for pair in pairs), *pairs]))
    pace = time_scaled(world, config.slots)
    scores: list[PairScore] = []
    for day in days:
        case = deployed_on(pace, config.slots, day, cluster=entrants.cluster)
        program, frame_s = (bench_program(case, config, played, entrants), config.slots.frame_s)
        num_s = frame_s * num_frames_of(case, config)
        reference: dict[str, np.ndarray] = {}
        for pair in played:
            progress(len(scores), text=f"{pair.dispatch} and {pair.orchestration}, day {day}")
            counts = _simulated(program, config, pair, played, entrants)
            if pair.orchestration == STATIC:
                reference[pair.dispatch] = _on_time(counts)
            scores.append(_score(pair, day, counts, num_s, reference[pair.dispatch]))
    progress(len(scores))
    return scores


def bench_program(
    case: Instance, config: OrchestrationBenchConfig, pairs: Sequence[Pair], entrants: Entrants = NO_ENTRANTS
) -> PairProgram:
    """The compiled day, in which the pairs' dispatchers and orchestrators can act, in the order of their first use."""
    dispatchers = [_dispatcher(case, name, entrants) for name in _first_uses(pair.dispatch for pair in pairs)]
    rules = [_rule(case, config, pair, entrants) for pair in _different_rules(pairs, entrants)]
    streams = (config.num_seeds * config.days_per_seed,)
    num_frames = num_frames_of(case, config)
    chance = true_chance(case)
    return pair_program(case.public, chance, config.frames, dispatchers, rules, num_frames, streams)


_BASELINE_RULES = {one.name: one for one in ORCHESTRATION_BASELINES}


def _different_rules(pairs: Sequence[Pair], entrants: Entrants) -> list[Pair]:
    """The pairs whose orchestrators differ: that of a baseline does not depend on the dispatcher."""
    first = {_rule_key(pair, entrants): pair for pair in reversed(pairs)}
    return [first[key] for key in dict.fromkeys(_rule_key(pair, entrants) for pair in pairs)]


def _rule_key(pair: Pair, entrants: Entrants) -> Pair:
    same = pair.orchestration in _BASELINE_RULES or pair.orchestration in entrants.indifferent
    return pair._replace(dispatch="") if same else pair


def _rule(case: Instance, config: OrchestrationBenchConfig, pair: Pair, entrants: Entrants) -> Orchestrate:
    name = pair.orchestration
    if name in _BASELINE_RULES:
        return _BASELINE_RULES[name].rule(case.public, config.frames)
    dispatch = _dispatcher(case, pair.dispatch, entrants)
    if name in entrants.orchestration:
        return entrants.orchestration[name](case.public, config.frames, dispatch)
    return reference(name, case, dispatch, config.frames)


def _dispatcher(case: Instance, name: str, entrants: Entrants) -> Dispatch:
    own = entrants.dispatch.get(name)
    return dispatcher(case, name) if own is None else own(case.public)


def dispatcher(case: Instance, name: str) -> Dispatch:
    """The baseline called `name`, as slot mode's dispatcher."""
    if name == GSP_SS_NAME:
        return gsp_ss_dispatch(case)
    policy = {one.name: one for one in BASELINES}[name].policy(case.public.cluster)
    return observing(case.public, policy)


def num_frames_of(case: Instance, config: OrchestrationBenchConfig) -> int:
    """Frames of a run: of the whole day, rounded up, or as many as are asked for."""
    frame_s = config.slots.frame_s
    whole = int(np.ceil(float(case.by_site.day_s) / frame_s))
    return whole if config.num_frames is None else min(whole, config.num_frames)


def _first_uses(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _simulated(
    program: PairProgram,
    config: OrchestrationBenchConfig,
    pair: Pair,
    pairs: Sequence[Pair],
    entrants: Entrants,
) -> Counts:
    rules = [_rule_key(one, entrants) for one in _different_rules(pairs, entrants)]
    kinds = (
        _first_uses(one.dispatch for one in pairs).index(pair.dispatch),
        rules.index(_rule_key(pair, entrants)),
    )
    delay_s = jnp.float32(entrants.delay_s.get(pair.dispatch, 0.0))
    return program(jax.random.key(config.seed), *(jnp.int32(kind) for kind in kinds), delay_s)


def _score(pair: Pair, day: int, counts: Counts, num_s: float, reference: np.ndarray) -> PairScore:
    """Ratios of sums over runs, each run being a unit of the bootstrap."""
    totals = {name: np.asarray(value, np.float64) for name, value in counts._asdict().items()}
    arrived, whole_s = totals["arrived"], np.full_like(totals["arrived"], num_s)
    scheduling_mib = totals["forwarded_mib"] + totals["pulled_mib"]
    parts = (
        (totals["on_time"], arrived),
        (totals["on_time"], whole_s),
        (scheduling_mib, arrived),
        (totals["pulled_mib"], arrived),
        (totals["energy_j"], arrived),
    )
    measures = {name: over_runs(*part) for name, part in zip(MEASURES, parts, strict=True)}
    per_run = _on_time(counts)
    return PairScore(pair, day, measures, over_runs(per_run - reference, np.ones_like(per_run)), per_run)


def _on_time(counts: Counts) -> np.ndarray:
    return np.asarray(counts.on_time, np.float64) / np.maximum(np.asarray(counts.arrived), 1)


def over_runs(above: np.ndarray, below: np.ndarray) -> Estimate:
    """Sum over sum of runs, both [runs], with its interval."""
    return estimate(ratio_over_units(above, below), len(above), IntervalConfig())


def validate_pairs(days: Sequence[int], pairs: Sequence[Pair], entrants: Entrants = NO_ENTRANTS) -> None:
    """Refuses days and policies that there are not.

    Raises:
        ConfigError: naming what is unknown and what is allowed.
    """
    if not days or min(days) < 0:
        raise ConfigError(
            f"days {list(days)}",
            where="bench orchestration",
            allowed="one or more days, 0 and later",
            advice="name at least one day",
        )
    known = (
        ("dispatch", (*DISPATCHERS, *entrants.dispatch)),
        ("orchestration", (*ORCHESTRATORS, *entrants.orchestration)),
    )
    for kind, allowed in known:
        for pair in pairs:
            name = getattr(pair, kind)
            if name not in allowed:
                raise ConfigError(
                    f"there is no {kind} baseline {name!r}",
                    where="bench orchestration",
                    allowed=", ".join(allowed),
                    advice="choose one of these",
                )


def with_changes(config: OrchestrationBenchConfig, num_changes: int) -> OrchestrationBenchConfig:
    """The same with H changes a frame, and as many under way at once as two frames may bring."""
    slots = replace(config.slots, changes=max(config.slots.changes, 2 * num_changes))
    return replace(config, slots=slots, frames=replace(config.frames, num_changes=num_changes))
