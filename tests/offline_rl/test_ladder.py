"""The ladder takes what is better with confidence, on paired windows, and stays where it cannot tell."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from offline_rl.networks import Actor
from offline_rl.recipes.ladder import (
    Rung,
    RungResult,
    chosen_of,
    climb,
    gain_of,
    in_words,
    rungs_of,
    select_row,
)

NOBODY = Actor(None, None)  # type: ignore[arg-type]
LUCK = 0.2 * np.random.default_rng(0).standard_normal(64)


def judged(_network, params):
    """A policy described by its own outcome: windows share their luck, `own` scatters beside it."""
    own = params.get("own", 0.0) * np.random.default_rng(params.get("seed", 1)).standard_normal(64)
    return RungResult(
        (params["value"] + LUCK + own)[: params.get("windows", 64)], params.get("out_of_support", 0.0)
    )


def climbed(**policies):
    return climb(
        [Rung(name, row, NOBODY, params) for row, (name, params) in enumerate(policies.items())], judged
    )


def test_a_small_gain_on_the_same_windows_is_taken_and_one_lost_in_noise_is_not() -> None:
    steps = climbed(
        rule={"value": 0.9},
        worse={"value": 0.89},
        tuned={"value": 0.905, "own": 0.001},
        noisy={"value": 0.91, "own": 0.5},
    )
    assert [name for name, step in steps.items() if step.taken] == ["rule", "tuned"]
    assert chosen_of(steps) == ("tuned", 2)
    assert steps["tuned"].gain == pytest.approx(0.005, abs=1e-3)
    assert 0.0 < steps["tuned"].low < steps["tuned"].gain
    assert in_words(steps).startswith("tuned: +0.00")
    assert [one["policy"] for one in rungs_of(steps)] == ["rule", "worse", "tuned", "noisy"]


def test_every_rung_is_held_against_the_one_that_stands() -> None:
    """The third is better than the first, and not than the second, which was taken before it."""
    steps = climbed(rule={"value": 0.8}, best={"value": 0.9}, third={"value": 0.85})
    assert chosen_of(steps)[0] == "best"
    assert steps["third"].gain == pytest.approx(-0.05)


def test_a_policy_at_which_the_twin_guesses_is_not_taken() -> None:
    guess = {"value": 0.99, "out_of_support": 0.2}
    assert chosen_of(climbed(rule={"value": 0.9}, guess=guess))[0] == "rule"
    alike = climbed(
        rule={"value": 0.9, "out_of_support": 0.3}, guess=guess
    )  # it guesses no more than at what it holds
    assert chosen_of(alike)[0] == "guess"


def test_with_one_window_the_first_rung_stays_and_nothing_is_made_up() -> None:
    steps = climbed(rule={"value": 0.5, "windows": 1}, other={"value": 0.9, "windows": 1})
    assert chosen_of(steps)[0] == "rule"
    assert rungs_of(steps)[1]["low"] is None
    assert in_words(steps) == "rule: no other rung was better with confidence"


def test_the_interval_is_student_s_over_windows_that_both_settled() -> None:
    rng = np.random.default_rng(3)
    one, two = rng.standard_normal((2, 12))
    expected = ttest_rel(one[1:], two[1:])
    one[0] = np.nan
    mean, low = gain_of(one, two)
    assert mean == pytest.approx(np.mean(one[1:] - two[1:]))
    assert low == pytest.approx(expected.confidence_interval(0.95).low)


def test_seeds_are_chosen_by_value() -> None:
    stacked = {"value": np.array([0.1, 0.3, 0.2])}
    assert (
        select_row(
            lambda _network, params: RungResult(np.array([float(params["value"])]), 0.0), NOBODY, stacked
        )
        == 1
    )
