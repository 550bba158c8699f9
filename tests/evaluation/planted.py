"""Faults planted into a system under test: what its certificate must find."""

import jax
import jax.numpy as jnp

from evaluation.certify.tested_system import SystemUnderTest
from twin.placement.types import REJECTED


def _altered(tested: SystemUnderTest, change) -> SystemUnderTest:
    """The system with `change(key, fate, again)` in place of every fate; `again(node)` asks for another node."""

    def answers(model):
        own = tested.answers(model)

        def answer(key, memory, state, node, response_aux):
            key_own, key_change = jax.random.split(key)
            following, fate = own.answer(key_own, memory, state, node, response_aux)

            def again(other):
                return own.answer(key_own, memory, state, other, response_aux)[1]

            return following, change(key_change, fate, state.clock_s[None], node, again)

        return own._replace(answer=answer)

    return tested._replace(answers=answers)


def waits_halved(tested: SystemUnderTest) -> SystemUnderTest:
    """Every wait is half as long."""

    def change(_key, fate, clock_s, _node, _again):
        start_s = clock_s + 0.5 * (fate.start_s - clock_s)
        return fate._replace(start_s=start_s, finish_s=start_s + (fate.finish_s - fate.start_s))

    return _altered(tested, change)


def acceptance_lowered(tested: SystemUnderTest, share: float = 0.1) -> SystemUnderTest:
    """Of all offers a tenth are refused that would have been accepted."""

    def change(key, fate, _clock_s, _node, _again):
        refused = jax.random.uniform(key, fate.accepted.shape) < share
        accepted = fate.accepted & ~refused
        status = jnp.where(accepted, fate.status, jnp.int32(REJECTED))
        return fate._replace(accepted=accepted, status=status)

    return _altered(tested, change)


def means_swapped(tested: SystemUnderTest, one: int, two: int) -> SystemUnderTest:
    """Runs on a node take as long as they would on the other."""

    def change(_key, fate, _clock_s, node, again):
        other = jnp.where(node == one, two, jnp.where(node == two, one, node))
        run_s = (lambda told: told.finish_s - told.start_s)(again(other))
        return fate._replace(finish_s=fate.start_s + run_s)

    return _altered(tested, change)
