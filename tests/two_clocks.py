"""Two groups of seats on two clocks: dispatchers in every slot, an orchestrator in the first slot of every frame.

A frame has a kind, which the orchestrator alone sees when it chooses what to deploy. From the next slot on a dispatched
request of colour c is served if it is sent to server (c + deployed) % 2, and what is served is worth `WORTH` of the
frame's kind and what is deployed: to its dispatcher at once, and to the orchestrator, as the mean of the seats over the
slots after its decision, when the frame ends. So what is best is known: always the right server, and the deployment
that is worth most.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Environment, Outcome, Problem, PyTree, Records, Response, Streams
from twin.environment import environment

FRAME, NUM_DISPATCHERS, NUM_KINDS, NUM_DEPLOYED = 4, 2, 3, 3
SLOT_S = 1.0
WORTH = np.array([[0.2, 1.0, 0.6], [0.9, 0.3, 0.5], [0.4, 0.6, 1.0]], np.float32)
"""[kinds, deployed]; every kind has a best of its own."""
GROUPS = {"dispatch": NUM_DISPATCHERS, "orchestrate": 1}


class Slot(NamedTuple):
    """What a slot brings."""

    kind: Array  # [*streams] int32 of the frame
    colour: Array  # [dispatchers, *streams] int32 of the requests in hand


class Frames(NamedTuple):
    """The public bookkeeping."""

    phase: Array  # [*streams] int32: slot of the frame
    slot: Slot
    deployed: Array  # [*streams] int32
    pending: Records  # of the orchestrator; outcome [1, *streams] what has been earned since


def served(state: Frames, server: Array) -> Array:
    """What each dispatched request [dispatchers, *streams] is worth."""
    right = server == (state.slot.colour + state.deployed[None]) % 2
    return jnp.where(right, jnp.asarray(WORTH)[state.slot.kind, state.deployed][None], 0.0)


def frames_problem() -> Problem:
    """The bookkeeping of both groups."""

    def start(outcome: Outcome) -> Frames:
        zero = jnp.zeros(outcome.elapsed_s.shape, jnp.int32)
        nothing = Records(zero[None] - 1, zero[None] > 0, jnp.zeros((1, *zero.shape)))
        return Frames(zero, outcome.observed_events, zero, nothing)

    def apply(
        state: Frames, action: PyTree, outcome: Outcome, decision: PyTree
    ) -> tuple[Frames, dict[str, Records]]:
        earned = served(state, action["dispatch"])
        opens, ends = (state.phase == 0)[None], (state.phase == FRAME - 1)[None]
        share = jnp.where(opens, 0.0, state.pending.outcome + jnp.mean(earned, axis=0)[None])
        number = jnp.where(opens, decision["orchestrate"], state.pending.decision)
        kept = Records(jnp.where(ends, -1, number), jnp.zeros_like(ends), share)
        left = {
            "dispatch": Records(decision["dispatch"], decision["dispatch"] >= 0, earned),
            "orchestrate": Records(jnp.where(ends, number, -1), ends, share),
        }
        deployed = jnp.where(opens[0], action["orchestrate"][0], state.deployed)
        return Frames((state.phase + 1) % FRAME, outcome.observed_events, deployed, kept), left

    def remaining(state: Frames) -> dict[str, Records]:
        none = jnp.full(state.slot.colour.shape, -1, jnp.int32)
        return {"dispatch": Records(none, none >= 0, jnp.zeros(none.shape)), "orchestrate": state.pending}

    def observe(state: Frames) -> PyTree:
        deployed = jnp.broadcast_to(
            one_hot(state.deployed, NUM_DEPLOYED)[:, None], (NUM_DEPLOYED, *state.slot.colour.shape)
        )
        seen = {"deployed": deployed, "colour": state.slot.colour[None].astype(jnp.float32)}
        return {"dispatch": seen, "orchestrate": one_hot(state.slot.kind, NUM_KINDS)[:, None]}

    def observe_global(state: Frames) -> PyTree:
        kind, deployed = one_hot(state.slot.kind, NUM_KINDS), one_hot(state.deployed, NUM_DEPLOYED)
        return kind, deployed, one_hot(state.phase, FRAME)

    def legal(state: Frames) -> PyTree:
        streams = state.phase.shape
        return {
            "dispatch": jnp.ones((2, NUM_DISPATCHERS, *streams), bool),
            "orchestrate": jnp.ones((NUM_DEPLOYED, 1, *streams), bool),
        }

    def active(state: Frames) -> PyTree:
        return {"dispatch": jnp.ones(state.slot.colour.shape, bool), "orchestrate": (state.phase == 0)[None]}

    return Problem(
        num_seats=sum(GROUPS.values()),
        start=start,
        observe=observe,
        observe_global=observe_global,
        legal=legal,
        active=active,
        apply=apply,
        remaining=remaining,
        decision_info=lambda _state, _action: {name: () for name in GROUPS},
        reward=lambda _facts, outcome: outcome,
        groups=GROUPS,
    )


def two_clocks(num_frames: int = 1000) -> Environment:
    """The environment; episodes are cut short after `num_frames`."""

    def draw(key: Array, kind: Array, opens: Array) -> Slot:
        key_kind, key_colour = jax.random.split(key)
        fresh = jax.random.randint(key_kind, kind.shape, 0, NUM_KINDS)
        colour = jax.random.randint(key_colour, (NUM_DISPATCHERS, *kind.shape), 0, 2)
        return Slot(jnp.where(opens, fresh, kind), colour)

    def init(key: Array, streams: Streams) -> tuple[Array, Outcome]:
        no, zero = jnp.zeros(streams, bool), jnp.zeros(streams, jnp.int32)
        return zero, Outcome(jnp.zeros(streams), no, no, draw(key, zero, ~no))

    def advance(key: Array, num_slots: Array, state: Frames, _action: PyTree) -> tuple[Array, Outcome]:
        slot = draw(key, state.slot.kind, state.phase == FRAME - 1)
        over = num_slots + 1 >= FRAME * num_frames
        elapsed_s = jnp.full(state.phase.shape, SLOT_S)
        return num_slots + 1, Outcome(elapsed_s, jnp.zeros_like(over), over, slot)

    return environment(frames_problem(), Response(init, advance, lambda _private, state: state))


def one_hot(number: Array, size: int) -> Array:
    """[size, *streams] float32."""
    return jnp.moveaxis(jax.nn.one_hot(number, size), -1, 0)
