"""Compares pairs of dispatcher and orchestrator on shifted days, in twins of those days and in the truth.

A pair plays the first frames of a day from an empty midnight and the training days' first deployment, several times;
each time is a unit of the intervals, and all pairs meet the same requests. The twin that judges a shift is fitted to
that shift's days alone, in the vocabulary of the trained one; the policies plan with the trained one's tables. What a
training has chosen stands beside the rules.
"""

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison, JudgeFacts, PolicyFacts, Run, ShiftFacts, compare
from evaluation.comparison.decisions import Decisions, plain_decisions
from evaluation.comparison.metrics import ON_TIME
from evaluation.comparison.products import archive_facts
from evaluation.comparison.shifts import ShiftPlan
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.descriptions import USERS
from evaluation.judges.named import refuse_taken
from evaluation.judges.user_judges import UserJudge, judged_by_users
from evaluation.judges.user_policies import UserPolicy, words_of
from evaluation.problems.orchestration.bench import Entrants, Pair
from evaluation.problems.orchestration.judged_pairs import judged_days, judged_pairs, sides_of
from evaluation.problems.orchestration.pairs import pair_program
from evaluation.problems.orchestration.references import LOOKAHEAD, PLANNED
from evaluation.problems.orchestration.rivals import rivals
from evaluation.problems.orchestration.trained import TrainedPair
from evaluation.problems.orchestration.user_pairs import user_pairs, what_went_wrong
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import deployed_on
from evaluation.simulator.slots.worlds import time_scaled
from evaluation.simulator.world_files import world_of
from logs_schema import Archive
from logs_schema.progress import Progress, Stage
from offline_rl.contract import EXPECTED_ON_TIME
from twin.orchestration.chance import Chance
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.encode import read_replicas, read_rows, read_samples
from twin.orchestration.fit import ChanceFitConfig, FittedCluster, fit_rows
from twin.orchestration.learned import learned_chance

COMPARED = (
    Pair("random", "static"), Pair("least_loaded", "static"), Pair("firmament", "static"),
    Pair("least_loaded", "random_scaling"), Pair("least_loaded", "hpa"), Pair("firmament", "hpa"),
    Pair("least_loaded", "hpa_requests"), Pair("least_loaded", "greedy_scaling"),
    Pair(EXPECTED_ON_TIME, "static"), Pair(EXPECTED_ON_TIME, PLANNED), Pair(EXPECTED_ON_TIME, LOOKAHEAD),
    Pair("least_loaded", PLANNED), Pair("least_loaded", LOOKAHEAD),
)  # fmt: skip
"""Who stands in every comparison; what plans does so with the twin's tables."""
REFERENCE = Pair("least_loaded", "static")
Played = tuple[np.ndarray, np.ndarray]
"""Requests that arrived and that were answered in time, in every run [runs]."""
TWIN, TRUTH = "twin of shifted days", "truth"
_ABOUT = {
    TWIN: "a twin fitted to the judged days themselves, which no policy has seen",
    TRUTH: "the simulated truth that wrote the log",
}


@dataclass(frozen=True)
class PlayConfig:
    """How much a judge plays.

    Attributes:
        num_frames: Frames of a day, from midnight.
        num_runs: Times that a day is played.
        seed: Of everything drawn.
    """

    num_frames: int = 24
    num_runs: int = 6
    seed: int = 0


def name_of(pair: Pair) -> str:
    """A pair's name in reports."""
    return f"{pair.dispatch}+{pair.orchestration}"


def compare_pairs(
    policies: Mapping[str, UserPolicy],
    fitted: FittedCluster,
    archive: Archive,
    plan: ShiftPlan,
    progress: Progress,
    *,
    play: PlayConfig | None = None,
    intervals: IntervalConfig | None = None,
    pairs: Sequence[Pair] = COMPARED,
    trained: TrainedPair | None = None,
    judges: Mapping[str, UserJudge] | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """Judges the pairs on every shift that the log can answer.

    Args:
        policies, judges: The user's, by name, see `user_pairs` and `JudgedPair`; what fails is left out and named.
        fitted: The trained twin.
        archive: With the shifted days.
        plan: Which days they are.
        progress: Where to show how far it is.
        play, intervals: See `PlayConfig` and `IntervalConfig`.
        pairs: Who is compared.
        trained: What a training has chosen, beside them.
        keep: What the other pairs came to already.

    Raises:
        ConfigError: A name of the user's is taken.
    """
    play, intervals, judges = play or PlayConfig(), intervals or IntervalConfig(), judges or {}
    refuse_taken(judges, (TWIN, TRUTH), "judge")
    runs: list[Run] = []
    pairs = pairs if trained is None else list(dict.fromkeys([*pairs, *trained.rivals, trained.pair]))
    entrants = rivals(fitted) if trained is None else rivals(fitted).joined(trained.entrants)
    names = {pair: name_of(pair) for pair in pairs}
    taken = [*names.values(), *(side for pair in pairs for side in pair)]
    entered = user_pairs(policies, taken, fitted, entrants)
    for one in entered.ready.values():
        entrants = entrants.joined(one.entrants)
    own = {one.pair: name for name, one in entered.ready.items()}
    names |= own  # their code is not known, so they play each time
    with progress.stage("judge", unit="shifts") as stage:
        for done, shift in enumerate(plan.shifts):
            stage(done, len(plan.shifts), f"after {shift.shift_days} days")
            if not shift.days:
                continue
            found = judged_clusters(archive, fitted, shift.days)
            for row, (judge, (edge, chance)) in enumerate(found.items()):
                shown = partial(_show, stage, done + row / len(found), len(found), len(plan.shifts), judge)
                where = f"{judge}, shift {shift.shift_days}d"
                kept = partial(_kept, keep, list(own), where)
                counts = play_pairs(edge, chance, fitted, list(names), play, entrants, shown, kept)
                runs += [
                    Run(judge, shift.shift_days, name, _decisions(*counts[pair], shift.days[0]), None)
                    for pair, name in names.items()
                ]
                for name, one in entered.ready.items():
                    if (error := what_went_wrong(name, one.watched, where)) is not None:
                        entered.refused.setdefault(name, error)
    runs = [run for run in runs if run.policy not in entered.refused]
    users = {name: PolicyFacts(name, USERS, words_of(policies[name])) for name in entered.ready}
    facts = [users.get(run.policy) or _facts_of(run.policy, trained) for run in runs]
    comparison = compare(
        runs, archive=archive_facts(archive), train_days=[day.isoformat() for day in plan.train_days],
        unit_kind="runs", policies=list(dict.fromkeys(facts)),
        judges=[JudgeFacts(name, _ABOUT[name]) for name in dict.fromkeys(run.judge for run in runs)],
        shifts=[ShiftFacts(one.shift_days, tuple(day.isoformat() for day in one.days), one.num_requests, one.note)
                for one in plan.shifts],
        metrics=(ON_TIME,), references=(name_of(REFERENCE),), config=intervals,
        notes=[f"Every day is played for {play.num_frames} frames from midnight, {play.num_runs} times.",
               *([] if trained is None else [f"The training chose {name_of(trained.pair)}."])],
    )  # fmt: skip
    comparison = entered.left_out_of(comparison)
    if not judges:
        return comparison
    return judged_by_users(
        comparison, judges, judged_pairs(fitted, names, entrants),
        judged_days(archive, comparison, fitted, play.seed), intervals, progress,
    )  # fmt: skip


def judged_clusters(
    archive: Archive, fitted: FittedCluster, days: Sequence[dt.date]
) -> dict[str, tuple[EdgeCloud, Chance]]:
    """Judge -> the cluster and its chance on some days; the truth where the archive says what it is."""
    shifted = twin_of_days(archive, fitted, days)
    found = {TWIN: (fitted.edge, learned_chance(fitted.edge, shifted.tables))}
    if (truth := archive.facts.get("ground_truth")) is None:
        return found
    world = time_scaled(world_of(truth), fitted.edge.config)
    day = (days[0] - dt.date.fromisoformat(truth["first_day"])).days
    case = deployed_on(world, fitted.edge.config, day, cluster=fitted.edge.cluster)
    public = case.public._replace(replicas=fitted.edge.replicas)
    return found | {TRUTH: (public, true_chance(case))}


def twin_of_days(archive: Archive, fitted: FittedCluster, days: Sequence[dt.date]) -> FittedCluster:
    """A twin of other days, in the vocabulary and with the first deployment of one that stands."""
    cluster = fitted.edge.cluster
    return fit_rows(
        archive, fitted.edge, fitted.frames, read_rows(archive, days, cluster),
        read_replicas(archive, days, cluster), read_samples(archive, days, cluster), len(days), ChanceFitConfig(),
    )  # fmt: skip


def play_pairs(
    edge: EdgeCloud, chance: Chance, fitted: FittedCluster, pairs: Sequence[Pair], config: PlayConfig,
    own: Entrants | None = None, shown: Callable[[float], None] = lambda _share: None,
    kept: Callable[[Pair, Callable[[], Played]], Played] = lambda _pair, make: make(),
) -> Mapping[Pair, Played]:  # fmt: skip
    """Pair -> requests that arrived and that were answered in time, in every run [runs].

    `own` are policies beside the baselines; `shown` is called with the share of the pairs that has played; `kept` makes
    what a pair came to, or knows it already.
    """
    own = rivals(fitted) if own is None else own
    sides = sides_of(edge, fitted.frames, pairs, own)
    program = pair_program(
        edge, chance, fitted.frames, list(sides.dispatch.values()), list(sides.orchestrate.values()),
        config.num_frames, (config.num_runs,),
    )  # fmt: skip

    def play(index: int, pair: Pair) -> Played:
        kind = list(sides.dispatch).index(pair.dispatch)
        late_s = jnp.float32(own.delay_s.get(pair.dispatch, 0.0))
        counts = program(jax.random.key(config.seed), jnp.int32(kind), jnp.int32(index), late_s)
        return np.asarray(counts.arrived), np.asarray(counts.on_time)

    found = {}
    for index, pair in enumerate(pairs):
        found[pair] = kept(pair, partial(play, index, pair))
        shown((index + 1) / len(pairs))
    return found


def _kept(
    keep: Unfinished, own: Collection[Pair], where: str, pair: Pair, make: Callable[[], Played]
) -> Played:
    """A unit of what is judged, but for the user's pairs: the name of a function does not identify its code."""
    if pair in own:
        return make()
    found: Played = keep.tree(f"{where}, {name_of(pair)}", make, lambda: (0, 0))
    return found


def _show(stage: Stage, begun: float, num_judges: int, num_shifts: int, judge: str, share: float) -> None:
    """Shows which share of a judge's pairs has played."""
    stage(begun + share / num_judges, num_shifts, judge)


def _decisions(arrived: np.ndarray, on_time: np.ndarray, day: dt.date) -> Decisions:
    """Requests as rows of which it is known whether they were answered in time, and nothing else."""
    unit = np.repeat(np.arange(len(arrived)), arrived)
    place = np.arange(len(unit)) - np.repeat(np.cumsum(arrived) - arrived, arrived)
    finish_s = np.where(place < np.repeat(on_time, arrived), 0.0, 2.0)
    days = np.full(len(unit), day.toordinal())
    found = plain_decisions(unit, days, np.zeros(len(unit), np.int64), np.zeros(len(unit)), finish_s)
    missing = {need: why for need, why in found.missing.items() if need not in ("deadlines", "statuses")}
    return replace(found, deadline_s=np.ones(len(unit)), missing=missing)


def _facts_of(name: str, trained: TrainedPair | None) -> PolicyFacts:
    dispatch, orchestration = name.split("+")
    is_trained = trained is not None and name == name_of(trained.pair) and trained.is_learned
    words = f"{dispatch} dispatches, {orchestration} orchestrates"
    return PolicyFacts(name, "trained" if is_trained else "baseline", words)
