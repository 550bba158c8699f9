"""Comparison of the new policy and the running one on the newest days, which are not training days.

Two judges: replay of those days, and a twin fitted on them. Both policies get the same arrivals and the same draws,
each with the observations of its own contract, so their difference is paired by unit.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.formatting import number
from evaluation.comparison.kept_runs import load_run, save_run
from evaluation.comparison.metrics import main_metric
from evaluation.comparison.products import archive_facts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.bundle_policies import BundlePolicy
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import (
    Candidate,
    Judge,
    common_shape,
    replay_judge,
    replay_program,
    twin_judge,
    twin_program,
    window_units,
)
from evaluation.judges.players import HISTORY, Players, as_logged
from evaluation.judges.unsupported import unspecified, without
from evaluation.problems.placement.seeds import joined
from evaluation.problems.refresh_parts import CONTENDERS, NEW, NEWEST, REPLAY, RUNNING
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from twin.contracts import Array
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin, fit_twin

KINDS = (HISTORY, NEW, RUNNING)
POLICIES = (
    *(PolicyFacts(name, "trained", description) for name, description in CONTENDERS.items()),
    PolicyFacts(HISTORY, "history", "the logged decisions"),
)
JUDGES = (
    JudgeFacts(
        REPLAY,
        "logged arrivals; logged outcomes where decisions agree, otherwise the outcome of the nearest request in time "
        "that ran on the chosen node. Blind to the crowding that another policy causes.",
    ),
    JudgeFacts(
        NEWEST,
        "logged arrivals; answers from a twin fitted on these very days, unseen in training. Sees crowding as far as "
        "the log taught it; it is a model, not the system.",
    ),
)


def judge_both(
    archive: Archive,
    twin: PlacementTwin,
    days: Sequence[dt.date],
    new: BundlePolicy,
    running: BundlePolicy,
    config: JudgeConfig,
    intervals: IntervalConfig,
    progress: Progress,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """Evaluates the new policy, the running one and the logged decisions.

    Args:
        archive: The archive with the days.
        twin: The twin of the new policy; its encoding describes the evaluated system.
        days: The newest days, after those of training.
        new, running: The policies.
        config: Configuration of the judges.
        intervals: Of the differences.
        progress: Progress display.
        keep: Finished parts: the twin, and every policy by every judge.

    Returns:
        The comparison, under shift 0; without the second judge where the days hold too few requests for a twin.
    """
    encoding, notes = twin.encoding, []
    windows = encode_days(archive, encoding, days, num_steps=config.num_steps)
    seen_by_running = encode_days(archive, running.encoding, days, num_steps=config.num_steps)
    shape, seen = common_shape([windows, seen_by_running]), {RUNNING: seen_by_running}
    players: Players = {HISTORY: as_logged, NEW: new.player(None), RUNNING: running.player(RUNNING)}
    others = {RUNNING: running.encoding}
    judges = [replay_judge(replay_program(encoding, players, others), encoding, windows, shape, seen)]
    key, answers = jax.random.key(config.seed), replace(twin.config, num_steps=config.num_fit_steps)
    try:
        if not config.num_fit_steps:
            raise ConfigError(
                "[judge] num_fit_steps = 0", where="the judges of a refresh", allowed="1 or more for a twin"
            )
        with progress.stage("fit a twin of the newest days"):
            fit = partial(
                fit_twin, jax.random.fold_in(key, 1), archive, encoding, days, answers,
                num_steps=twin.windows.num_steps, progress=progress,
            )  # fmt: skip
            newest = keep.unit("twin", fit, PlacementTwin.save, PlacementTwin.load)
    except ConfigError as error:
        notes.append(f"no twin of the newest days ({error.what}); replay decides")
    else:
        program = twin_program(encoding, newest.config, players, others)
        in_twin = twin_judge(
            program, encoding, windows, newest.model, shape, copies=config.copies, name=NEWEST, others=seen
        )
        judges.append(in_twin)
    lacking = unspecified(archive, days)
    runs: list[Run] = []
    with progress.stage("judge the new policy and the running one", unit="judges") as stage:
        for done, judge in enumerate(judges):
            stage(float(done), float(len(judges)), judge.name)
            runs += [_run(key, without(judge, lacking), kind, keep) for kind in KINDS]
    main = main_metric(encoding.problem.reward)
    counts = archive.num_rows_on("requests", days)
    found = compare(
        runs,
        archive=archive_facts(archive),
        train_days=[day.isoformat() for day in encoding.train_days],
        unit_kind=window_units(windows)[2],
        policies=POLICIES,
        judges=[facts for facts in JUDGES if facts.name in {run.judge for run in runs}],
        shifts=[ShiftFacts(0, tuple(day.isoformat() for day in days), counts)],
        references=(RUNNING, HISTORY),
        main_metric=main.name,
        notes=notes,
        config=intervals,
    )
    return replace(found, notes=(*found.notes, *_worth_of_history(found)))


def _worth_of_history(comparison: Comparison) -> list[str]:
    """How far the twin of the newest days is off on the decisions that were really taken, in words."""
    in_twin, logged = (
        comparison.cell(judge, 0, HISTORY, comparison.main_metric) for judge in (NEWEST, REPLAY)
    )
    if in_twin is None or logged is None:
        return []
    return [
        f"value of the logged decisions: {number(logged.value)} in the log, {number(in_twin.value)} by the {NEWEST}; "
        "the larger the difference, the less reliable its verdict"
    ]


def _run(key: Array, judge: Judge, kind: str, keep: Unfinished) -> Run:
    def make() -> Run:
        return joined(judge.name, 0, kind, judge.evaluate(key, [Candidate(kind, kind, None)]))

    return keep.unit(f"{judge.name}, {kind}", make, save_run, load_run)
