"""The new policy and the running one on the newest days, which neither twin nor new policy has learned from.

Two judges: replay of those days, and a twin fitted on them. Both policies meet the same arrivals and the same draws,
each sees the system as its own contract says, so their difference is paired by unit.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.bootstrap import BootstrapConfig
from evaluation.comparison import Comparison, JudgeFacts, PolicyFacts, Run, ShiftFacts, compare
from evaluation.configuration import JudgeConfig
from evaluation.formatting import number
from evaluation.judging import (
    Candidate,
    Judge,
    Judged,
    Program,
    compiled,
    replay_judge,
    slim,
    twin_judge,
    window_units,
)
from evaluation.metrics import MEAN_LOG_SLOWDOWN, ON_TIME
from evaluation.pipeline import archive_facts
from evaluation.players import HISTORY, Seen, as_logged, play
from evaluation.progress import Progress
from evaluation.refresh.contender import Contender
from evaluation.refresh.parts import CONTENDERS, NEW, RUNNING
from evaluation.refresh.views import Translation, answered, translation_of, two_views
from evaluation.unsaid import unsaid, without
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree, Response
from twin.placement.encoding import Encoding
from twin.placement.learned import AnswerModel, learned_answers
from twin.placement.model import PlacementTwin, encode_days, fit_twin
from twin.placement.replay import ReplayTable, replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.types import Leaf
from twin.placement.windows import Windows, replayed_arrivals, select

KINDS = (HISTORY, NEW, RUNNING)
REPLAY, NEWEST = "replay", "twin of the newest days"
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
    new: Contender,
    running: Contender,
    config: JudgeConfig,
    intervals: BootstrapConfig,
    progress: Progress,
) -> Comparison:
    """Judges the new policy, the running one and the logged decisions.

    Args:
        archive: With the days.
        twin: That the new policy was trained in; its encoding describes the judged system.
        days: The newest days, after those of training.
        new, running: The policies.
        config: How to judge.
        intervals: Of the differences.
        progress: Where to show how far it is.

    Returns:
        The comparison, under shift 0; without the second judge where the days hold too few requests for a twin.
    """
    encoding, notes = twin.encoding, []
    windows = encode_days(archive, encoding, days, num_steps=config.num_steps)
    seen_by_running = encode_days(archive, running.encoding, days, num_steps=config.num_steps)
    translation, shape = translation_of(seen_by_running), (windows.num_steps, windows.num_windows)
    replay = _bound(_replay_program(encoding, new, running), translation, new, running)
    judges = [replay_judge(replay, encoding, windows, shape)]
    key, answers = jax.random.key(config.seed), replace(twin.config, num_steps=config.num_fit_steps)
    try:
        with progress.stage("fit a twin of the newest days"):
            fit = jax.random.fold_in(key, 1)
            newest = fit_twin(fit, archive, encoding, days, answers)
    except ConfigError as error:
        notes.append(f"no twin of the newest days ({error.what}); replay decides")
    else:
        lives = np.tile(np.arange(windows.num_windows), config.copies)
        tiled = translation_of(select(seen_by_running, lives))
        program = _bound(_twin_program(encoding, newest, new, running), tiled, new, running)
        judges.append(
            twin_judge(
                program,
                encoding,
                windows,
                newest.model,
                shape,
                copies=config.copies,
                name=NEWEST,
            )
        )
    lacking = unsaid(archive, days)
    with progress.stage("judge the new policy and the running one"):
        runs = [run for judge in judges for run in _runs(key, without(judge, lacking))]
    main = ON_TIME if encoding.problem.reward == "on_time" else MEAN_LOG_SLOWDOWN
    counts = sum(archive.num_rows("requests", day) for day in days)
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
    told, logged = (comparison.cell(judge, 0, HISTORY, comparison.main_metric) for judge in (NEWEST, REPLAY))
    if told is None or logged is None:
        return []
    return [
        f"the logged decisions were worth {number(logged.value)}; the {NEWEST} says {number(told.value)}: the further "
        "apart, the less its verdict is worth"
    ]


def _runs(key: Array, judge: Judge) -> list[Run]:
    trials = judge.try_out(key, [Candidate(kind, kind, None) for kind in KINDS])
    return [
        Run(
            judge.name, 0, kind, trial.decisions, agreement=trial.agreement,
            num_overflow=trial.decisions.num_censored if judge.name != REPLAY else 0,
            num_illegal=trial.num_illegal, unfamiliar=trial.unfamiliar,
        )
        for kind, trial in zip(KINDS, trials, strict=True)
    ]  # fmt: skip


def _bound(program: Program, translation: Translation, new: Contender, running: Contender) -> Program:
    """The program as judges call it: with windows and answers, the rest at hand."""
    rest = jax.tree.map(jnp.asarray, (translation, new.params, running.params))

    def run(key: Array, kind: Array, params: PyTree, windows: Windows, answers: PyTree) -> Judged:
        return program.run(key, kind, params, windows, answers, *rest)

    return program._replace(run=run)


def _replay_program(encoding: Encoding, new: Contender, running: Contender) -> Program:
    def response(windows: Windows, table: ReplayTable) -> Response:
        answers = replayed_answers(windows, table)
        return drawn_response(encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), answers)

    return _program(encoding, new, running, response)


def _twin_program(encoding: Encoding, newest: PlacementTwin, new: Contender, running: Contender) -> Program:
    def response(windows: Windows, model: AnswerModel) -> Response:
        answers = learned_answers(encoding, newest.config, model)
        return drawn_response(encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), answers)

    return _program(encoding, new, running, response, newest.model.usual_room_s)


def _program(
    encoding: Encoding,
    new: Contender,
    running: Contender,
    response: Callable[..., Response],
    usual_room_s: Leaf | None = None,
) -> Program:
    """One compiled program for `KINDS`; shared arguments: windows, answers, translation, both policies' parameters."""

    def run(
        key: Array, kind: Array, _: PyTree, windows: Windows, answers: PyTree, translation: Translation,
        params_new: PyTree, params_running: PyTree,
    ) -> Judged:  # fmt: skip
        def play_new(_params: PyTree, _key: Array, seen: Seen, legal: Array) -> Array:
            return new.decide(params_new, seen.observation.own, legal)

        def play_running(_params: PyTree, _key: Array, seen: Seen, legal: Array) -> Array:
            return running.decide(params_running, seen.observation.other, legal)

        players = {HISTORY: as_logged, NEW: play_new, RUNNING: play_running}
        num_steps, *streams = windows.arrival_s.shape
        played = play(
            key, two_views(encoding, running.encoding, translation), answered(response(windows, answers)),
            players, kind, None, num_steps=num_steps, streams=tuple(streams),
            logged=jnp.maximum(jnp.asarray(windows.node), 0)[:, None],
        )  # fmt: skip
        return slim(played, usual_room_s)

    return compiled(run, KINDS, 5)
