"""Plays slots and counts: on-time throughput frame by frame, without keeping a trajectory."""

from typing import NamedTuple

import jax

from twin.contracts import Array, Environment, EnvironmentState, Policy, Streams
from twin.orchestration.counts import Counts


class SlotResult(NamedTuple):
    """What a run came to."""

    counts: Counts  # leaves [frames, *streams]: totals at the end of every frame
    state: EnvironmentState  # the last one


def play(
    key: Array,
    environment: Environment,
    policy: Policy,
    num_frames: int,
    slots_per_frame: int,
    streams: Streams = (),
) -> SlotResult:
    """Runs a policy from an empty system.

    Args:
        key: PRNG key; the same key gives the same bits, and the same run as `twin.rollout.rollout` of as many steps.
        environment: Of slot mode.
        policy: Decides from local observations.
        num_frames: Number of frames.
        slots_per_frame: Slots in each, as in `SlotConfig`.
        streams: Shape of the independent copies.

    Returns:
        The totals after every frame and the last state; `counts.throughput()` is the on-time throughput so far.
    """
    problem = environment.problem

    def slot(state: EnvironmentState, key_slot: Array) -> tuple[EnvironmentState, None]:
        key_policy, key_response = jax.random.split(key_slot)
        action = policy(key_policy, problem.observe(state.problem), problem.legal(state.problem))
        return environment.step(key_response, state, action)[0], None

    def frame(state: EnvironmentState, keys: Array) -> tuple[EnvironmentState, Counts]:
        state, _ = jax.lax.scan(slot, state, keys)
        return state, state.problem.view.counts

    key_reset, key_slots = jax.random.split(key)
    keys = jax.random.split(key_slots, num_frames * slots_per_frame)
    state, counts = jax.lax.scan(
        frame, environment.reset(key_reset, streams), keys.reshape(num_frames, slots_per_frame)
    )
    return SlotResult(counts, state)
