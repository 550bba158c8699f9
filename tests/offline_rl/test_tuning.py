"""Rules tuned by successive halving: the best of candidates with a known optimum, by paired plays of one shape."""

from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.contract import EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE
from offline_rl.errors import TrainingError
from offline_rl.rules import numbers_of, rule_params
from offline_rl.rules.in_twin import tune_rules
from offline_rl.rules.tuning import successive_halving
from tests.offline_rl.test_rules import NODES, observation_of
from twin.contracts import Policy
from twin.placement.randomisation import Randomisation

CANDIDATES = [{"price": jnp.float32(price)} for price in np.linspace(0.0, 1.0, 8)]
BEST = 5


def noisy(common: float, own: float, shapes: set):
    """A play whose optimum is candidate `BEST`, with luck that all of one key share, and luck of their own."""

    @jax.jit
    def play(params, keys):
        shapes.add((params["price"].shape, keys.shape))

        def one(price, key):
            shared = common * jax.random.normal(key)
            unshared = own * jax.random.normal(jax.random.fold_in(key, (1000.0 * price).astype(int)))
            return shared + unshared - (price - CANDIDATES[BEST]["price"]) ** 2

        return jax.vmap(one)(params["price"], keys)

    return play


def test_luck_that_all_share_decides_nothing() -> None:
    shapes: set = set()
    found = successive_halving(jax.random.key(0), noisy(100.0, 0.0, shapes), CANDIDATES)
    assert found.best == BEST
    assert shapes == {((8,), (8,))}  # one program
    assert sorted(found.num_plays.tolist()) == [1, 1, 1, 1, 3, 3, 7, 7]
    assert found.num_plays.sum() == 3 * 8


@pytest.mark.slow
def test_those_that_play_on_are_known_better() -> None:
    right = [
        successive_halving(jax.random.key(seed), noisy(1.0, 0.05, set()), CANDIDATES).best
        for seed in range(20)
    ]
    assert np.mean(np.abs(np.array(right) - BEST) <= 1) >= 0.9


def test_ties_go_to_the_first_and_odd_numbers_are_refused() -> None:
    def level(params, keys):
        return jnp.zeros(keys.shape)

    assert successive_halving(jax.random.key(0), level, CANDIDATES).best == 0
    assert successive_halving(jax.random.key(0), level, CANDIDATES[:1]).best == 0
    with pytest.raises(TrainingError, match="6 candidates"):
        successive_halving(jax.random.key(0), level, CANDIDATES[:6])


class _KeepsFastNodesFree:
    """A twin of one decision, which is worth 1 on the second node, that is slower, and leaves the first one free."""

    encoding = SimpleNamespace(cluster=SimpleNamespace(pace=None, shared_waits=""))
    seen = observation_of(
        (
            {**NODES[1], "same_site": 1.0, "backlog": 0.0, "needed": 1.0, "free": 1.0, "run": 2.0},
            {**NODES[1], "same_site": 1.0, "backlog": 0.0, "needed": 0.1, "free": 1.0, "run": 2.5},
        ),
        None,
    )

    def played(
        self, key: jax.Array, policy: Policy, *_arguments: object, **_windows: object
    ) -> SimpleNamespace:
        chosen = policy(key, self.seen, jnp.ones(self.seen.node.shape[1:], bool))
        return SimpleNamespace(reward=chosen.astype(jnp.float32), active=jnp.ones(chosen.shape, bool))


@pytest.mark.parametrize("names", [[LEAST_EXPECTED_RESPONSE], [EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE]])
def test_the_first_rule_that_a_log_supports_is_tuned(names: list[str]) -> None:
    """A price that keeps cores free is found, whether requests have deadlines or not."""
    rules = {name: rule_params(name) for name in names}
    twin: Any = _KeepsFastNodesFree()
    tuned, tried = tune_rules(jax.random.key(0), twin, cast(Any, ()), cast(Any, ()), rules, 1)
    assert list(tuned) == [f"{names[0]}_tuned"]
    (params,) = tuned.values()
    assert tried.values[tried.best] == 1.0
    assert tried.values[0] == 0.0  # as the log has it
    assert float(numbers_of(params)["price"]) > 0.0


class _SlowsDown(_KeepsFastNodesFree):
    """The first node is the better one, unless its speed varies."""

    def played(self, key: jax.Array, policy: Policy, *arguments: object, **given: object) -> SimpleNamespace:
        episodes = super().played(key, policy, *arguments, **given)
        varies = given["randomisation"] is not None
        return SimpleNamespace(
            reward=episodes.reward if varies else 1.0 - episodes.reward, active=episodes.active
        )


@pytest.mark.parametrize(("varied", "is_free"), [(None, True), (Randomisation(nodes=0.2), False)])
def test_a_price_is_tuned_to_what_durations_may_become(varied: Randomisation | None, is_free: bool) -> None:
    rules = {LEAST_EXPECTED_RESPONSE: rule_params(LEAST_EXPECTED_RESPONSE)}
    twin: Any = _SlowsDown()
    given: Any = (jax.random.key(0), twin, (), (), rules, 1)
    (params,) = tune_rules(*given, randomisation=varied)[0].values()
    assert (float(numbers_of(params)["price"]) == 0.0) is is_free


class _SharesALink(_KeepsFastNodesFree):
    """The second node, of another site, is quicker, and its transfers take less than they did in the log."""

    def __init__(self, shared_waits: str) -> None:
        self.encoding = SimpleNamespace(cluster=SimpleNamespace(pace=None, shared_waits=shared_waits))
        home = {**NODES[1], "same_site": 1.0, "backlog": 0.0, "needed": 0.1, "free": 1.0, "run": 2.0}
        self.seen = observation_of((home, {**home, "same_site": 0.0, "run": 1.0}), None)


@pytest.mark.parametrize(("shared_waits", "worth"), [("site", 1.0), ("", 0.0)])
def test_what_transfers_take_is_tuned_where_they_share_a_link(shared_waits: str, worth: float) -> None:
    rules = {LEAST_EXPECTED_RESPONSE: rule_params(LEAST_EXPECTED_RESPONSE, latency=[0.0, 2.0, 0.0])}
    twin: Any = _SharesALink(shared_waits)
    _, tried = tune_rules(jax.random.key(0), twin, cast(Any, ()), cast(Any, ()), rules, 1)
    assert tried.values[tried.best] == worth
