"""Action values against loops over choices, and the width of a mean's interval against SciPy's t-test."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from offline_rl import values
from offline_rl.confidence import half_width
from offline_rl.numpy_networks import MASKED_LOGIT

RNG = np.random.default_rng(0)
PAIR = {
    "node": RNG.normal(size=(2, 4, 3, 5)),
    "level": RNG.normal(size=(2, 2, 3, 5)),
}  # [2, choices, seats, streams]
ACTION = {"node": RNG.integers(4, size=(3, 5)).astype(np.int32), "level": np.ones((3, 5), np.int32)}


def taken(which: int, seat: int, stream: int) -> tuple[float, float]:
    """The values of the two leaves' choices, by one network of the pair."""
    node, level = (ACTION[name][seat, stream] for name in ("node", "level"))
    return PAIR["node"][which, node, seat, stream], PAIR["level"][which, level, seat, stream]


def test_an_action_is_worth_the_mean_of_its_leaves_and_their_sum_where_asked():
    one = values.one_of_pair(PAIR, 1)
    mean, total = values.action_value(one, ACTION), values.summed_action_value(one, ACTION)
    for seat in range(3):
        for stream in range(5):
            parts = taken(1, seat, stream)
            assert float(mean[seat, stream]) == pytest.approx(sum(parts) / 2, abs=1e-6)
            assert float(total[seat, stream]) == pytest.approx(sum(parts), abs=1e-6)


def test_the_lower_of_a_pair_is_taken_choice_by_choice():
    found = values.lower(PAIR)
    for name, leaf in PAIR.items():
        np.testing.assert_allclose(found[name], np.where(leaf[0] < leaf[1], leaf[0], leaf[1]), rtol=1e-6)


def test_the_error_of_a_pair_is_of_both_networks_and_of_what_counts_alone():
    target, weight = RNG.normal(size=(3, 5)), RNG.integers(2, size=(3, 5)).astype(np.float32)
    assert 0 < weight.sum() < weight.size
    found = values.pair_loss(PAIR, ACTION, np.where(weight > 0, target, np.nan), weight)
    errors = [
        sum((sum(taken(which, *place)) / 2 - target[place]) ** 2 for which in (0, 1))
        for place in np.ndindex(3, 5)
        if weight[place]
    ]
    assert float(found) == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_illegal_choices_have_no_part_in_a_soft_value():
    legal = np.array([[3.0], [1.0], [-2.0]])
    all_of_it = np.concatenate([legal, [[MASKED_LOGIT]]]).astype(np.float32)
    assert float(values.soft_value((all_of_it,))[0]) == pytest.approx(math.log(np.exp(legal).sum()), rel=1e-6)


def test_a_target_network_goes_part_of_the_way():
    found = values.polyak_update({"w": jnp.array([1.0, -1.0])}, {"w": jnp.array([3.0, -1.0])}, 0.25)
    np.testing.assert_allclose(found["w"], [1.5, -1.0])


@pytest.mark.parametrize("size", [2, 3, 12])
def test_a_mean_is_off_by_as_much_as_the_t_test_says(size):
    sample = np.random.default_rng(size).normal(2.0, 3.0, size)
    low, high = stats.ttest_1samp(sample, 0.0).confidence_interval(0.9)
    assert half_width(sample, 0.95) == pytest.approx((high - low) / 2)
    assert half_width(sample, 0.95) == pytest.approx(high - sample.mean())


def test_of_one_value_nothing_is_known():
    assert half_width(np.array([3.0]), 0.9) == math.inf
    assert half_width(np.zeros(0), 0.9) == math.inf
