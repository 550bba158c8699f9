"""Episodes that begin in the middle of things: the system goes on, and what was decided before is nobody's."""

import jax
import numpy as np
import pytest

from tests.toys import toy_problem, toy_response
from twin.environment import environment
from twin.legality import any_legal
from twin.rollout import rollout
from twin.warm_up import warmed

BEFORE, STEPS, STREAMS = 5, 6, (2,)


@pytest.mark.slow
def test_an_episode_after_a_warm_up_is_the_end_of_a_longer_one() -> None:
    system = environment(toy_problem(), toy_response(drawn=False))
    later = warmed(system, lambda _key, _state, legal: any_legal(legal), BEFORE)

    def played(system, num_steps):
        return rollout(
            jax.random.key(0), system, lambda _key, _seen, legal: any_legal(legal), num_steps, STREAMS
        )

    whole, end = played(system, BEFORE + STEPS), played(later, STEPS)
    # Some is under way at the end, as before it
    assert np.asarray(end.settled).sum() < np.asarray(end.settled).size
    for name in ("observation", "settled", "reward", "outcome", "elapsed_s"):
        for long, short in zip(*(jax.tree.leaves(getattr(one, name)) for one in (whole, end)), strict=True):
            np.testing.assert_allclose(np.asarray(long)[BEFORE:], short, rtol=1e-6)
