"""The truth as a judge: candidates act in the simulated world that wrote the log, on whole days simulated anew.

Only for logs of the ground truth. A day begins empty at midnight, as the days of the log do, and is replicated several
times; each replication is a resampling unit. The logged behaviour is evaluated as `history`: like the rules that read
the world's tables, it decides from the bookkeeping state.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from evaluation.baselines import TruthBaseline
from evaluation.baselines.truth_baseline import as_behaviour
from evaluation.comparison.decisions import decisions_from
from evaluation.comparison.shifts import TestDays
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import Candidate, Evaluation, Judge, Judged, Program, all_at_once, compiled, slim
from evaluation.judges.players import HISTORY, Players, of_reference, play
from evaluation.judges.room import with_room
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import DayConditions, longest_day
from evaluation.simulator.logs import truth_folder
from evaluation.simulator.names import names_in
from evaluation.simulator.truth import day_of_truth, depths_of, ground_truth, truth_response
from evaluation.simulator.workloads import FACT, Workload, load_workload, missing_arrivals
from evaluation.simulator.world_files import world_of
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from twin.contracts import Array, PyTree
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding

NAME = "truth"


def workload_beside(archive: Archive) -> Workload | None:
    """The requests kept beside a simulated log; None where its world drew them.

    Raises:
        ConfigError: the log was not simulated, or its requests are needed and are not there.
    """
    truth = ground_truth(archive.facts)
    return load_workload(truth, truth_folder(archive.path), world_of(truth).day_s)


class TruthProgram(NamedTuple):
    """The compiled truth, for every number of slots per node that its policies may need."""

    depths: tuple[int, ...]
    at: Callable[[int], Program]


def truth_program(
    facts: Mapping[str, Any],
    encoding: Encoding,
    players: Players,
    workload: Workload | None = None,
    num_days: int = JudgeConfig.num_true_days,
    *,
    rules: Sequence[TruthBaseline] = (),
    side_by_side: bool = False,
) -> TruthProgram:
    """The compiled truth; shared arguments: today, weekday.

    Every day is replicated `num_days` times; each replication is a resampling unit. The logged behaviour takes the
    place of the logged decisions; it and `rules`, which read the world's tables, act here beside `players`, but not
    where these act `side_by_side` (see `compiled`).

    Raises:
        ConfigError: the log was made of another archive's requests, and the workload is not given.
    """
    truth = ground_truth(facts)
    if FACT in truth and workload is None:
        raise missing_arrivals(truth[FACT], "truth")
    world = world_of(truth)
    declared = world if workload is None else workload.declared(world)
    names = names_in(world, encoding.cluster, encoding.run_habits)
    num_steps = longest_day(world) if workload is None else workload.num_rows
    truth_rules = {HISTORY: as_behaviour(behaviour(truth["behaviour"]))}
    truth_rules |= {baseline.name: baseline.decide for baseline in rules}
    if side_by_side:
        truth_rules = {}

    @cache
    def at(depth: int) -> Program:
        config = replace(encoding.problem, depth=depth)

        def run(
            key: Array, kind: Array | None, params: PyTree, today: DayConditions, weekday: Array
        ) -> Judged:
            problem = placement(encoding.cluster, config, age_s=age_of(today, encoding, _first_day(truth)))
            response = truth_response(world, encoding.cluster, depth, today, names, weekday=weekday)
            references = {
                name: of_reference(one, declared, names, today) for name, one in truth_rules.items()
            }
            acting = {**players, **references}
            return slim(
                play(key, problem, response, acting, kind, params, num_steps=num_steps, streams=(num_days,))
            )

        return compiled(run, (*players, *truth_rules), 2, side_by_side=side_by_side)

    return TruthProgram(depths_of(world, encoding.problem.depth), at)


def truth_judge(
    program: TruthProgram,
    facts: Mapping[str, Any],
    encoding: Encoding,
    shift: TestDays,
    workload: Workload | None = None,
) -> Judge:
    """The truth of one day: the last training day simulated again for shift 0, later days for later shifts.

    Candidates whose requests find no slot are simulated again with more (`judges.room`). The requests of a workload are
    the same in every replication of a day: intervals cover the randomness of the outcomes only.
    """
    truth = ground_truth(facts)
    day = shift.days[0]
    today = day_of_truth(world_of(truth), (day - _first_day(truth)).days, workload)

    def evaluate(key: Array, candidates: Sequence[Candidate]) -> list[Evaluation]:
        def simulate(depth: int, chosen: Sequence[int]) -> list[Evaluation]:
            one = program.at(depth)
            if one.side_by_side:  # its rows are all players
                together = all_at_once(one, key, candidates, today, day.weekday())
                judged = [together[place] for place in chosen]
            else:
                acting = [candidates[place] for place in chosen]
                judged = all_at_once(one, key, acting, today, day.weekday())
            return [_result(each, encoding, day) for each in judged]

        return with_room(
            simulate, len(candidates), program.depths, lambda one: bool(one.decisions.lost.any())
        )

    return Judge(NAME, evaluate)


def _result(judged: Judged, encoding: Encoding, day: dt.date) -> Evaluation:
    """Every simulated day is a unit; its span is from its first request to its last."""
    clock_s = judged.decision_info.arrival_s[:, 0]
    unit = np.broadcast_to(np.arange(judged.active.shape[-1]), judged.active.shape)
    decisions = decisions_from(
        judged,
        encoding.cluster,
        unit=unit,
        day=np.array(day.toordinal()),
        window_s=np.maximum(clock_s.max(axis=0) - clock_s[0], 1.0),
    )
    return Evaluation(decisions, None, int(judged.illegal.sum()))


def age_of(today: DayConditions, encoding: Encoding, first_day: dt.date) -> Array:
    """[] seconds from the end of training to midnight of `today`, in a world whose day 0 is `first_day`; at least 0."""
    until = max(encoding.train_days) - first_day
    return jnp.maximum(jnp.asarray(today.day) - (until.days + 1), 0.0) * DAY_S


def _first_day(truth: Mapping[str, Any]) -> dt.date:
    return dt.date.fromisoformat(truth["first_day"])
