"""Which autoscaler is handed over: a learned one where it is surely better, else the rule."""

import numpy as np
import pytest

from offline_rl.autoscaling.ladder import choose_autoscaler


def episodes(mean, seed, number=20, spread=1.0):
    return mean + spread * np.random.default_rng(seed).normal(size=number)


def test_what_is_surely_better_is_taken_and_what_only_seems_so_is_not():
    luck = episodes(0.0, 0, spread=3.0)  # of the loads, which all of them share
    rewards = {"rule": luck, "good-0": luck + episodes(1.0, 1), "doubtful-0": luck + episodes(0.1, 2)}
    taken = choose_autoscaler(rewards, "rule", ("good-0", "doubtful-0"))
    assert taken.name == taken.best == "good-0"
    assert 0.0 < taken.low < taken.gain < 2.0
    doubtful = choose_autoscaler(rewards, "rule", ("doubtful-0",))
    assert (doubtful.name, doubtful.best) == ("rule", "doubtful-0")
    assert doubtful.low < 0.0


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        ({"is_trusted": False}, "failed its certificate"),
        ({"off_by": 1.5}, "is off by 1.50"),
        ({"num_members": 5}, "one member of the twin puts the gain at -1.00"),
    ],
)
def test_in_a_twin_that_cannot_be_believed_so_far_the_rule_stays(doubt, why):
    gains = np.tile([1.5, 1.5, 1.5, 1.5, -1.0], 20)  # five members take turns
    rewards = {"rule": np.zeros(100), "good-0": gains}
    taken = choose_autoscaler(rewards, "rule", ("good-0",))
    assert (taken.name, taken.why) == ("good-0", "")
    kept = choose_autoscaler(rewards, "rule", ("good-0",), **doubt)
    assert (kept.name, kept.best) == ("rule", "good-0")
    assert why in kept.why


def test_the_best_of_many_that_are_as_good_as_the_rule_is_rarely_taken():
    """They are chosen on other episodes than they are held against the rule on: 2.5 % is the level."""
    taken = 0
    for trial in range(200):
        rewards = {str(one): episodes(0.0, 1000 * trial + one) for one in range(9)}
        taken += choose_autoscaler(rewards, "0", [str(one) for one in range(1, 9)]).name != "0"
    assert taken <= 12


def test_without_episodes_to_tell_or_anything_learned_the_rule_stays():
    assert choose_autoscaler({"rule": np.zeros(2)}, "rule", ()).name == "rule"
    one = choose_autoscaler({"rule": np.zeros(2), "a-0": np.ones(2)}, "rule", ("a-0",))
    assert one.name == "rule"
    assert one.gain == pytest.approx(1.0)
    assert one.low == -np.inf
