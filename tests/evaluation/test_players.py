"""Players side by side in one run decide what each decides in a run of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.judges.judge import Candidate, Judged, all_at_once, compiled, slim
from evaluation.judges.players import PlayerInput, Players, play
from tests.toys import toy_problem, toy_response
from twin.contracts import Array, PyTree

KEY = jax.random.key(5)


def players() -> Players:
    """One that draws, one that reads its parameters, one that reads the observation."""

    def drawn(_params: PyTree, key: Array, _seen: PlayerInput, legal: PyTree) -> PyTree:
        keys = iter(jax.random.split(key, len(jax.tree.leaves(legal))))
        return jax.tree.map(lambda mask: jax.random.randint(next(keys), mask.shape[1:], 0, len(mask)), legal)

    def stated(params: PyTree, _key: Array, _seen: PlayerInput, legal: PyTree) -> PyTree:
        return jax.tree.map(lambda mask: jnp.full(mask.shape[1:], params, jnp.int32), legal)

    def looking(_params: PyTree, _key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        total = sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(seen.observation))
        return jax.tree.map(lambda mask: jnp.full(mask.shape[1:], total % 2.0 > 1.0, jnp.int32), legal)

    return {"drawn": drawn, "stated": stated, "looking": looking}


@pytest.mark.slow
def test_players_side_by_side_decide_as_each_alone() -> None:
    def run(key: Array, kind: Array | None, params: PyTree) -> Judged:
        problem, response = toy_problem(), toy_response(length=9)
        return slim(play(key, problem, response, players(), kind, params, num_steps=8, streams=(4,)))

    candidates = [Candidate(name, name, jnp.int32(number)) for number, name in enumerate(players())]
    alone = all_at_once(compiled(run, players(), 0), KEY, candidates)
    together = all_at_once(compiled(run, players(), 0, side_by_side=True), KEY, candidates)
    for one, other in zip(alone, together, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert len({jax.tree.leaves(one.action)[0].tobytes() for one in together}) == 3
