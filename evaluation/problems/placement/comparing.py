"""Evaluates every policy on time-shifted days and records the results.

The twin of shifted days is fitted on the test days and not used in training; the training twin simulates the same
arrivals, so that its in-model values can be compared with the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax

from evaluation.comparison.comparison import REFERENCES, Comparison, compare
from evaluation.comparison.entries import OffPolicyRow, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.formatting import share_in_words
from evaluation.comparison.kept_runs import load_rows, load_run, save_rows, save_run
from evaluation.comparison.shifts import ShiftConfig, TestDays, answerable, plan_shifts
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.descriptions import JUDGES, USERS
from evaluation.judges.judge import Candidate, Judge, common_shape, window_units
from evaluation.judges.named import refuse_taken
from evaluation.judges.off_policy import FittedQConfig, OffPolicyConfig
from evaluation.judges.off_policy.judging import OffPolicyJudge, probability_program
from evaluation.judges.placement_entries import PolicyEntries, enter_players, evaluate, refuse_failed
from evaluation.judges.players import Players, players_of
from evaluation.judges.trust import TRUTH, judges_trust
from evaluation.judges.truth import truth_judge, truth_program, workload_beside
from evaluation.judges.unsupported import lacks, unspecified
from evaluation.judges.user_judges import judged_by_users
from evaluation.judges.user_policies import with_training_days
from evaluation.problems.placement.case import Case, candidates_from, refuse_uneven_replications
from evaluation.problems.placement.judging_days import judged_days, judged_policies
from evaluation.problems.placement.seeds import joined, overflow_of, spread_of
from evaluation.problems.placement.shifted import key_of_shift, notes_on_fits
from evaluation.problems.placement.window_judges import window_judges
from logs_schema.background import Background, NotesAlone
from logs_schema.progress import Progress, Stage
from offline_rl.networks import Actor, Example, actor
from offline_rl.recipes.schedulers import example_for, network_for
from offline_rl.rules.in_twin import DESCRIPTIONS
from twin.contracts import Array
from twin.placement.log_windows import encode_days, looked_at
from twin.placement.windows import Windows

OFF_POLICY = "off policy"
"""The further judge of every shift."""
COMPARISON_CODE = 29
"""Raised when changes of the code change comparisons: those of older code are made again."""


class Judgements(NamedTuple):
    """The judges' results of a case, with its inputs."""

    runs: list[Run]
    off_policy: list[OffPolicyRow]
    windows: list[Windows]
    entered: PolicyEntries
    judge_notes: list[str]
    notes: list[str]


def compare_case(case: Case, progress: Progress, *, facts: Mapping[str, Any]) -> Comparison:
    """Judges all candidates on all shifts that the log can answer.

    Raises:
        ConfigError: No shift has days in the log, a window's replications cannot be dealt to the twin's members, or a
            judge of the user's has the name of another.
    """
    refuse_taken(case.judges, [one.name for one in JUDGES], "judge")
    runs, off_policy, windows, entered, judge_notes, notes = judge_case(case, progress)
    runs = [run for run in runs if run.policy not in entered.refused]
    if entered.bundles:
        notes.append(
            f"made from other days, so evaluated on the log's own requests only: {', '.join(entered.bundles)}"
        )
    kinds = {window_units(part)[2] for part in windows}
    if any(run.judge == TRUTH for run in runs):
        kinds.add("days simulated in the truth")
    judged = {run.policy for run in runs}
    found = compare(
        runs,
        archive=facts,
        train_days=[day.isoformat() for day in case.plan.train_days],
        unit_kind=" / ".join(sorted(kinds)),
        policies=[policy for policy in _facts_of(entered, case.described) if policy.name in judged],
        judges=[judge for judge in JUDGES if judge.name in {run.judge for run in runs}],
        shifts=[_shift_facts(shift) for shift in case.plan.shifts],
        references=(*REFERENCES, *DESCRIPTIONS),
        main_metric=case.main.name,
        trust=judges_trust(runs, case.main),
        off_policy=off_policy,
        judge_notes=judge_notes,
        notes=notes,
        config=case.intervals,
    )
    found = replace(found, refused={name: str(error) for name, error in entered.refused.items()})
    found = with_training_days(found, case.policies)
    return _by_users(case, found, windows, entered, progress) if case.judges else found


def _by_users(
    case: Case, found: Comparison, windows: Sequence[Windows], entered: PolicyEntries, progress: Progress
) -> Comparison:
    """The comparison with the judges of the user's added."""
    cluster, example = case.twin.encoding.cluster, example_for(case.twin.encoding, windows[0])
    network = _network_of(case, entered, example) or actor(example)
    players = {**players_of(cluster, network, case.config.compared(), case.rules), **entered.players}
    candidates = _candidates_of(case, entered, network)
    candidates += [Candidate(name, name, candidates[0].params) for name in entered.players]
    days = judged_days(case, answerable(case.plan), windows)
    policies = judged_policies(players, candidates, entered.hosted)
    return judged_by_users(found, case.judges, policies, days, case.intervals, progress)


def judge_case(case: Case, progress: Progress) -> Judgements:
    """Evaluates all candidates by the judges, or by the one of `Case.only`; ConfigError as `compare_case`."""
    refuse_uneven_replications(case.config, case.twin.config.num_members)
    tested = answerable(case.plan)
    judge_notes = notes_on_fits(case.config)
    notes = [f"shift {shift.name}: {shift.note}" for shift in case.plan.shifts if shift.note]
    windows = [
        encode_days(case.archive, case.twin.encoding, shift.days, num_steps=case.config.num_steps)
        for shift in tested
    ]
    for shift, part in zip(tested, windows, strict=True):
        total = case.archive.num_rows_on("requests", shift.days)
        if total > looked_at(case.twin.encoding):
            judged = share_in_words(int(part.valid().sum()), total)
            notes.append(f"shift {shift.name}: {judged} are judged, in stretches spread evenly over the days")
    ours = candidates_from(case.schedulers, case.twin.encoding.cluster, case.config.compared())
    taken = dict.fromkeys(
        [*(one.name for one in ours), *(one.name for one in case.config.compared_in_truth())]
    )
    entered = enter_players(
        case.policies, case.twin.encoding, example_for(case.twin.encoding, windows[0]), tuple(taken)
    )
    runs = list(_runs(case, tested, windows, entered, judge_notes, notes, progress))
    off_policy = _off_policy(case, tested, windows, entered, judge_notes, progress)
    return Judgements(runs, off_policy, windows, entered, judge_notes, notes)


def _facts_of(entered: PolicyEntries, ours: Sequence[PolicyFacts]) -> list[PolicyFacts]:
    ours = [policy for policy in ours if policy.name not in entered.names]
    kinds = dict.fromkeys(entered.trained, "trained")
    return [
        *ours,
        *(PolicyFacts(name, kinds.get(name, USERS), entered.words[name]) for name in entered.names),
    ]


def _runs(
    case: Case,
    shifts: Sequence[TestDays],
    windows: Sequence[Windows],
    entered: PolicyEntries,
    judge_notes: list[str],
    notes: list[str],
    progress: Progress,
) -> Iterator[Run]:
    encoding = case.twin.encoding
    example = example_for(encoding, windows[0])
    network = _network_of(case, entered, example) or actor(example)
    players = players_of(encoding.cluster, network, case.config.compared(), case.rules)
    candidates = _candidates_of(case, entered, network)
    unused = candidates[0].params
    of_bundles = [Candidate(name, name, unused) for name in entered.bundles]
    candidates += [Candidate(name, name, unused) for name in entered.players]
    judges_on = window_judges(case, windows, players, entered, judge_notes)
    truth = None
    if "ground_truth" in case.archive.facts:
        truth = _truth(case, {**players, **entered.players}, candidates, entered, progress)
    with progress.stage("judge", total=len(shifts), unit="shifts") as stage:
        for done, (shift, part) in enumerate(zip(shifts, windows, strict=True)):
            stage(done, text=f"shift {shift.name}")
            judges = judges_on(shift, part, partial(stage, done))
            key = key_of_shift(case.config, shift)
            for number, judge in enumerate(judges):
                report = partial(stage, done + number / len(judges))
                yield from _evaluated(
                    key, judge, [*candidates, *of_bundles], shift, case, entered, notes, report
                )
        stage(len(shifts))
    if truth is not None:
        found, more = truth()
        notes += more
        yield from found


def _truth(
    case: Case, players: Players, candidates: Sequence[Candidate], entered: PolicyEntries, progress: Progress
) -> Callable[[], tuple[list[Run], list[str]]]:
    """The truth's runs and their notes when they are wanted; begun now, beside the other judges, unless functions of
    the user take part, which need not bear two threads."""

    def make(progress: Progress) -> tuple[list[Run], list[str]]:
        notes: list[str] = []
        return list(_true_runs(case, players, candidates, entered, notes, progress)), notes

    if entered.words:
        return lambda: make(progress)
    begun = Background(lambda: make(NotesAlone(progress)))

    def wait() -> tuple[list[Run], list[str]]:
        with progress.stage("judge in the truth (begun beside the others)"):
            return begun.result()

    return wait


def _network_of(case: Case, entered: PolicyEntries, example: Example) -> Actor | None:
    """The network of the trained policies; None where nothing was trained."""
    return entered.network if case.schedulers is None else network_for(case.schedulers, example)


def _candidates_of(case: Case, entered: PolicyEntries, network: Actor) -> list[Candidate]:
    """The candidates besides the user's functions and bundles; all parameters are of one form."""
    candidates = candidates_from(
        case.schedulers, case.twin.encoding.cluster, case.config.compared(), case.rules
    )
    if case.schedulers is not None:
        return candidates
    unused = jax.jit(network.init)(jax.random.key(0))
    return [*(candidate._replace(params=unused) for candidate in candidates), *entered.seeds()]


def _off_policy(
    case: Case,
    shifts: Sequence[TestDays],
    windows: Sequence[Windows],
    entered: PolicyEntries,
    notes: list[str],
    progress: Progress,
) -> list[OffPolicyRow]:
    """Off-policy estimates from the shifted days' logs; none where nothing was trained or they were left out, nor, with
    a note, of days whose log lacks what the main metric needs."""
    encoding, num_updates = case.twin.encoding, case.config.off_policy_updates
    shape, example = common_shape(windows), example_for(encoding, windows[0])
    network = _network_of(case, entered, example)
    if not num_updates or network is None or encoding.cluster.num_nodes < 2:
        return []
    players = players_of(encoding.cluster, network, case.config.compared(), case.rules)
    program = probability_program({**players, **entered.players}, network)
    fit = FittedQConfig(horizon_s=2.0 * encoding.problem.memory_s, num_updates=num_updates)
    candidates = _candidates_of(case, entered, network)
    able = [name for name in entered.players if name not in entered.refused]
    candidates += [Candidate(name, name, candidates[0].params) for name in able]
    config = OffPolicyConfig(intervals=case.intervals)
    judge = OffPolicyJudge(case.archive, encoding, shape, candidates, example, network, program, config, fit)
    keep = Unfinished() if able or entered.trained else case.keep
    rows: list[OffPolicyRow] = []
    with progress.stage("off-policy estimates", total=len(shifts), unit="shifts") as stage:
        for done, (shift, part) in enumerate(zip(shifts, windows, strict=True)):
            if not case.wants(OFF_POLICY, shift):
                continue
            stage(done, text=f"shift {shift.name}")
            if lacking := lacks(case.main, unspecified(case.archive, shift.days)):
                notes.append(f"shift {shift.name}: no off-policy estimates ({lacking})")
                continue
            key = jax.random.fold_in(jax.random.key(case.config.seed + 2), shift.shift_days)
            make = partial(judge.estimates, key, shift, part, partial(_show, stage, done, shift.name))
            rows += keep.unit(f"{OFF_POLICY}, {shift.name}", make, save_rows, load_rows)
            refuse_failed(entered, f"{OFF_POLICY}, shift {shift.name}")
        stage(len(shifts))
    return [row for row in rows if row.policy not in entered.refused]


def _show(stage: Stage, done: int, shift: str, share: float) -> None:
    stage(done + share, text=f"shift {shift}")


def _true_runs(
    case: Case,
    players: Players,
    candidates: Sequence[Candidate],
    entered: PolicyEntries,
    notes: list[str],
    progress: Progress,
) -> Iterator[Run]:
    """The candidates in the simulated system itself."""
    shifts = [shift.shift_days for shift in case.plan.shifts]
    text = ",".join(f"{shift}d" for shift in shifts)
    plan = plan_shifts({}, case.plan.train_days, ShiftConfig(text), truth=True)
    workload = workload_beside(case.archive)
    program = truth_program(
        case.archive.facts,
        case.twin.encoding,
        players,
        workload,
        case.config.num_true_days,
        rules=case.config.compared_in_truth(),
    )
    nothing = candidates[0].params
    candidates = [
        *candidates,
        *(Candidate(one.name, one.name, nothing) for one in case.config.compared_in_truth()),
    ]
    with progress.stage("judge in the truth", total=len(shifts), unit="shifts") as stage:
        for done, shift in enumerate(plan.shifts):
            if not case.wants(TRUTH, shift):
                continue
            stage(done, text=f"shift {shift.name}")
            key = jax.random.fold_in(jax.random.key(case.config.seed + 1), shift.shift_days)
            judge = truth_judge(program, case.archive.facts, case.twin.encoding, shift, workload)
            yield from _evaluated(key, judge, candidates, shift, case, entered, notes, partial(stage, done))
        stage(len(shifts))


def _evaluated(
    key: Array,
    judge: Judge,
    candidates: Sequence[Candidate],
    shift: TestDays,
    case: Case,
    entered: PolicyEntries,
    notes: list[str],
    report: Callable[..., None],
) -> Iterator[Run]:
    """One run for each policy name, saved as soon as it is done; seeds are joined, and their spread is noted. What the
    ladder chose is another policy under another name, and is not played again.

    The user's own policies are evaluated again each time: the name of a function does not identify its code.
    """
    runs: dict[tuple[tuple[str, int], ...], Run] = {}
    for name in dict.fromkeys(candidate.name for candidate in candidates):
        report(text=f"shift {shift.name}, {judge.name}: {name}")
        same = [candidate for candidate in candidates if candidate.name == name]
        if name in entered.words:
            results = [result for _, result in evaluate(judge, key, same, entered, shift.shift_days)]
            if results:
                yield joined(judge.name, shift.shift_days, name, results)
            continue

        played = tuple((one.kind, id(one.params)) for one in same)
        known = runs.get(played)

        def make(name: str = name, same: Sequence[Candidate] = same, known: Run | None = known) -> Run:
            if known is not None:
                return replace(known, policy=name)
            return joined(judge.name, shift.shift_days, name, judge.evaluate(key, same))

        run = runs[played] = case.keep.unit(f"{judge.name}, {shift.name}, {name}", make, save_run, load_run)
        notes += spread_of(run, shift, case.main) + overflow_of(run, shift)
        yield run


def _shift_facts(shift: TestDays) -> ShiftFacts:
    return ShiftFacts(
        shift.shift_days, tuple(day.isoformat() for day in shift.days), shift.num_requests, shift.note
    )
