"""Both time scales in one trajectory: dispatchers decide in every slot, an orchestrator in the first of every frame.

Two groups of seats (`twin.groups`): DISPATCH, one seat an access point, is the slot problem; ORCHESTRATE, H seats that
are active when a frame begins, is the frame problem. Their changes are entered before the slot's requests are sent. A
dispatched request is worth what the slot problem says, when its fate is known; a frame is worth what the frame problem
says, when it ends. A frame that an episode cuts short is not settled. Between its decisions the orchestrator observes
zeros and nothing is legal to it, so that a policy can be spared the slots in which no stream begins a frame.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Environment, Outcome, Problem, PyTree, Response, Streams
from twin.environment import beside, environment
from twin.orchestration.chance import Chance
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig, validate_frames
from twin.orchestration.frame_mechanics import frame_events, load_now
from twin.orchestration.frame_state import FrameState, Load, as_orchestration
from twin.orchestration.frames import frame_problem
from twin.orchestration.mechanics import Private, slot_response
from twin.orchestration.slots import SlotEvents, SlotState, slot_problem

DISPATCH, ORCHESTRATE = "dispatch", "orchestrate"
"""The groups of seats."""


Part = Callable[[PyTree], PyTree]


class JointEvents(NamedTuple):
    """What is recorded of a slot."""

    slot: SlotEvents
    load: Load  # at the end of the slot


class JointState(NamedTuple):
    """The books of both time scales."""

    slot: SlotState
    frame: FrameState  # as the present frame began
    phase: Array  # [*streams] int32: slots of the frame that have passed
    total: Load  # sums over the samples of the frame so far
    pending: Array  # [H, *streams] int32: the decisions of the present frame, -1 where there are none


def joint_problem(
    case: EdgeCloud, config: FrameConfig, slots: Problem | None = None, frames: Problem | None = None
) -> Problem:
    """The problem of both groups; everything by seat is a mapping from group to what its own problem says.

    Args:
        case: The instance.
        config: Of the frames.
        slots, frames: What the groups see and are worth where that is not as in `slot_problem` and `frame_problem`.
    """
    slots, frames = slots or slot_problem(case), frames or frame_problem(case, config)

    def start(outcome: Outcome) -> JointState:
        observed_events: JointEvents = outcome.observed_events
        slot = slots.start(outcome._replace(observed_events=observed_events.slot))
        nothing = jax.tree.map(jnp.zeros_like, observed_events.load)
        frame = frames.start(outcome._replace(observed_events=frame_events(slot, nothing)))
        zero = jnp.zeros(outcome.elapsed_s.shape, jnp.int32)
        return JointState(
            slot, frame, zero, nothing, jnp.full((frames.num_seats, *zero.shape), -1, jnp.int32)
        )

    def remaining(state: JointState) -> PyTree:
        unknown = frames.remaining(state.frame)
        return {DISPATCH: slots.remaining(state.slot), ORCHESTRATE: unknown._replace(decision=state.pending)}

    def both(of_slots: Part, of_frames: Part) -> Callable[[JointState], dict[str, PyTree]]:
        def read(state: JointState) -> dict[str, PyTree]:
            frame = _where_one_begins(of_frames, state)
            return {DISPATCH: of_slots(state.slot), ORCHESTRATE: frame}

        return read

    def reward(decision_info: PyTree, outcome: PyTree) -> PyTree:
        parts = {DISPATCH: slots, ORCHESTRATE: frames}
        return {name: part.reward(decision_info[name], outcome[name]) for name, part in parts.items()}

    def active(state: JointState) -> PyTree:
        begins = jnp.broadcast_to((state.phase == 0)[None], state.pending.shape)
        return {DISPATCH: slots.active(state.slot), ORCHESTRATE: begins}

    return Problem(
        num_seats=slots.num_seats + frames.num_seats,
        start=start,
        observe=both(slots.observe, frames.observe),
        observe_global=lambda state: {
            DISPATCH: slots.observe_global(state.slot),
            ORCHESTRATE: frames.observe_global(state.frame),
        },
        legal=both(slots.legal, frames.legal),
        active=active,
        apply=partial(_apply, case, config, slots, frames),
        remaining=remaining,
        decision_info=lambda state, action: {
            DISPATCH: slots.decision_info(state.slot, action[DISPATCH]),
            ORCHESTRATE: frames.decision_info(state.frame, action[ORCHESTRATE]),
        },
        reward=reward,
        groups={DISPATCH: slots.num_seats, ORCHESTRATE: frames.num_seats},
    )


def _apply(
    case: EdgeCloud,
    config: FrameConfig,
    slots: Problem,
    frames: Problem,
    state: JointState,
    action: PyTree,
    outcome: Outcome,
    decision: PyTree,
) -> tuple[JointState, PyTree]:
    """A slot of dispatching, and at the end of a frame what orchestration settles."""
    length = case.config.slots_per_frame
    every = length // config.samples_per_frame
    observed_events: JointEvents = outcome.observed_events
    slot_outcome = outcome._replace(observed_events=observed_events.slot)
    slot, left = slots.apply(state.slot, action[DISPATCH], slot_outcome, decision[DISPATCH])
    pending = jnp.where((state.phase == 0)[None], decision[ORCHESTRATE], state.pending)
    passed = state.phase + 1
    total = jax.tree.map(
        lambda sofar, now: sofar + jnp.where(beside(passed % every == 0, now), now, 0.0),
        state.total,
        observed_events.load,
    )
    ends = passed == length
    mean = jax.tree.map(lambda leaf: leaf / config.samples_per_frame, total)
    frame_outcome = outcome._replace(observed_events=frame_events(slot, mean))
    frame, settled = frames.apply(state.frame, action[ORCHESTRATE], frame_outcome, pending)

    def when_it_ends(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(beside(ends, a), a, b), new, old)

    number = jnp.where(ends[None], settled.decision, -1)
    following = JointState(
        slot,
        when_it_ends(frame, state.frame),
        jnp.where(ends, 0, passed),
        when_it_ends(jax.tree.map(jnp.zeros_like, total), total),
        jnp.where(ends[None], -1, pending),
    )
    return following, {DISPATCH: left, ORCHESTRATE: settled._replace(decision=number, settled=number >= 0)}


def joint_response(case: EdgeCloud, chance: Chance) -> Response:
    """The mechanics of slot mode, in which the orchestrators' changes are entered when a frame begins."""

    def revealed(private: Private, outcome: Outcome) -> tuple[Private, Outcome]:
        return private, outcome._replace(
            observed_events=JointEvents(outcome.observed_events, load_now(case, private))
        )

    def init(key: Array, streams: Streams) -> tuple[Private, Outcome]:
        return revealed(*slot_response(case, chance).init(key, streams))

    def advance(key: Array, private: Private, state: JointState, action: PyTree) -> tuple[Private, Outcome]:
        asked = as_orchestration(action[ORCHESTRATE], case.num_services)
        response = slot_response(case, chance, lambda _key, _state: asked)
        return revealed(*response.advance(key, private, state.slot, action[DISPATCH]))

    def resolve_pending(private: Private, state: JointState) -> JointState:
        return state._replace(slot=slot_response(case, chance).resolve_pending(private, state.slot))

    return Response(init, advance, resolve_pending)


def joint_environment(
    case: EdgeCloud,
    chance: Chance,
    config: FrameConfig | None = None,
    slots: Problem | None = None,
    frames: Problem | None = None,
) -> Environment:
    """Dispatchers and an orchestrator, learning or deciding together; arguments as of `joint_problem`.

    Raises:
        ConfigError: the frames do not fit the slots.
    """
    config = validate_frames(case.config, config or FrameConfig())
    return environment(joint_problem(case, config, slots, frames), joint_response(case, chance))


def _where_one_begins(part: Part, state: JointState) -> PyTree:
    """A part of the frame problem, if a frame begins in any stream; else zeros, without the work."""
    nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), jax.eval_shape(part, state.frame))
    return jax.lax.cond(jnp.any(state.phase == 0), part, lambda _frame: nothing, state.frame)
