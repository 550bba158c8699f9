"""The truth as a judge: candidates act in the simulated world that wrote the log, on any of its days, afresh.

Only for logs of the ground truth. The episodes of one day begin at evenly spread times of day; each is a resampling
unit of its own. The logged behaviour is judged too, as `history`: it decides from the bookkeeping's view of the world.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.decisions import decisions_from
from evaluation.judging import (
    HISTORY,
    KINDS,
    Candidate,
    Judge,
    Judged,
    Program,
    Trial,
    all_at_once,
    chooser,
    compiled,
    slim,
)
from evaluation.shifts import TestDays
from evaluation.simulator.behaviour import Behaviour, View, behaviour
from evaluation.simulator.conditions import Conditions, conditions
from evaluation.simulator.names import Names, names_in
from evaluation.simulator.presets import preset
from evaluation.simulator.truth import ground_truth, truth_answers, truth_arrivals
from evaluation.simulator.world import World
from offline_rl.networks import Actor
from twin.contracts import Array, PyTree
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.responses import drawn_response
from twin.placement.types import PlacementState
from twin.rollout import unroll

NUM_STREAMS = 48
NUM_STEPS = 512
NAME = "truth"


def truth_program(facts: Mapping[str, Any], encoding: Encoding, network: Actor) -> Program:
    """The compiled truth; shared arguments: today, weekday."""
    truth = ground_truth(facts)
    world = preset(truth["preset"])
    names = names_in(world, encoding.cluster)
    begin_s = jnp.arange(NUM_STREAMS) * (float(conditions(world, 0).day_s) / NUM_STREAMS)
    writer = behaviour(truth["behaviour"])

    def run(key: Array, kind: Array, params: PyTree, today: Conditions, weekday: Array) -> Judged:
        response = drawn_response(
            encoding.cluster,
            encoding.problem.depth,
            truth_arrivals(world, today, names, weekday=weekday, begin_s=begin_s),
            truth_answers(world, today, names),
        )
        problem = placement(encoding.cluster, encoding.problem)
        shown = problem._replace(observe=lambda state: (problem.observe(state), state))
        rule = chooser(encoding, network, jnp.maximum(kind, 1), params)

        def decide(key: Array, seen: tuple[PyTree, PlacementState], legal: Array, _: None) -> Array:
            observation, state = seen
            return jax.lax.cond(
                kind == KINDS.index(HISTORY),
                lambda: _as_written(key, writer, world, names, today, state),
                lambda: rule(key, observation, legal, jnp.zeros(legal.shape[1:], jnp.int32)),
            )

        return slim(unroll(key, environment(shown, response), decide, None, NUM_STEPS, (NUM_STREAMS,)))

    return compiled(run, 2)


def _as_written(
    key: Array, writer: Behaviour, world: World, names: Names, today: Conditions, state: PlacementState
) -> Array:
    """The decision of the behaviour that wrote the log, [1, *streams], in the vocabulary of the cluster."""
    table, clock = state.in_flight, state.clock_s[None, None]
    held = (table.decision != -1) & (table.finish_s > clock)
    in_world = np.argsort(names.world_node)  # node of the vocabulary that every node of the world is
    count = jnp.sum(held, axis=1, dtype=jnp.float32)[in_world]
    work_s = jnp.sum(jnp.where(held, table.expected_run_s, 0.0), axis=1)[in_world]
    request = jax.tree.map(lambda leaf: leaf[0], state.request)._replace(demand=state.request.demand[:, 0])
    request = request._replace(
        site=jnp.asarray(names.world_site)[request.site],
        service=jnp.asarray(names.world_service)[request.service],
    )

    def one(key: Array, view: View) -> Array:
        return jax.random.choice(key, len(world.nodes), p=writer.probabilities(today, view))

    view = View(request, count, work_s)
    keys = jax.random.split(key, state.clock_s.shape[0])
    chosen = jax.vmap(one, in_axes=(0, -1))(keys, view)
    return jnp.asarray(in_world, jnp.int32)[chosen][None]


def truth_judge(program: Program, facts: Mapping[str, Any], encoding: Encoding, shift: TestDays) -> Judge:
    """The truth of one day: the last training day lived again for shift 0, later days for later shifts."""
    truth = ground_truth(facts)
    day = shift.days[0]
    today = conditions(preset(truth["preset"]), (day - _first_day(truth)).days)

    def try_out(key: Array, candidates: Sequence[Candidate]) -> list[Trial]:
        judged = all_at_once(program, key, candidates, today, day.weekday())
        return [_trial(one, encoding, day) for one in judged]

    return Judge(NAME, try_out)


def _trial(judged: Judged, encoding: Encoding, day: dt.date) -> Trial:
    """Every episode is a unit; its span is from its first request to its last."""
    clock_s = judged.facts.arrival_s[:, 0]
    unit = np.broadcast_to(np.arange(NUM_STREAMS), judged.active.shape)
    decisions = decisions_from(
        judged,
        encoding.cluster,
        unit=unit,
        day=np.array(day.toordinal()),
        window_s=np.maximum(clock_s[-1] - clock_s[0], 1.0),
    )
    return Trial(decisions, None, int(judged.illegal.sum()))


def _first_day(truth: Mapping[str, Any]) -> dt.date:
    return dt.date.fromisoformat(truth["first_day"])
