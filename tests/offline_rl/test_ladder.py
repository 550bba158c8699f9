"""The ladder takes what is better with confidence, on paired windows, and stays where it cannot tell."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from offline_rl.networks import Actor
from offline_rl.recipes.ladder import (
    Rung,
    RungResult,
    RungStep,
    chosen_of,
    climb,
    gain_of,
    logged_value,
    rungs_of,
    select_row,
)
from offline_rl.recipes.ladder_words import beside_the_log, in_words
from twin.contracts import PyTree

NO_ENTRANTS = Actor(None, None)  # type: ignore[arg-type]
LUCK = 0.2 * np.random.default_rng(0).standard_normal((2, 64))


def judged(_network, params):
    """A policy described by its own outcome with two members: windows share their luck, `own` scatters beside it, and
    `apart` is what the members disagree by."""
    own = params.get("own", 0.0) * np.random.default_rng(params.get("seed", 1)).standard_normal((2, 64))
    value = params["value"] + LUCK + own + params.get("apart", 0.0) * np.array([[-0.5], [0.5]])
    response_s = params.get("response_s", 10.0) * np.exp(LUCK)
    shown = slice(0, params.get("windows", 64))
    return RungResult(value[:, shown], params.get("out_of_support", 0.0), response_s[:, shown])


def judged_with_error(_network: object, gained: float | None) -> RungResult:
    """The rung that is held (None), or one that gains so much with a standard error of .01 over 64 windows."""
    wave = np.random.default_rng(5).standard_normal(64)
    wave = 0.08 * (wave - wave.mean()) / wave.std(ddof=1)
    value = 0.8 + LUCK + (0.0 if gained is None else gained + wave)
    return RungResult(value, 0.0, np.ones_like(value))


def climbed(most_response=None, **policies):
    rungs = [Rung(name, row, NO_ENTRANTS, params) for row, (name, params) in enumerate(policies.items())]
    return climb(rungs, judged, most_response=most_response)


def test_a_small_gain_on_the_same_windows_is_taken_and_one_lost_in_noise_is_not() -> None:
    steps = climbed(
        rule={"value": 0.9},
        worse={"value": 0.89},
        smaller={"value": 0.908, "own": 0.001},
        better={"value": 0.912, "own": 0.001},
        noisy={"value": 0.93, "own": 0.5},
    )
    assert [name for name, step in steps.items() if step.taken] == ["rule", "better"]
    assert chosen_of(steps) == ("better", 3)
    assert steps["smaller"].low > 0.0  # surely better, by too little for a network of its own
    assert steps["better"].gain == pytest.approx(0.012, abs=1e-3)
    assert 0.0 < steps["better"].low < steps["better"].gain
    assert in_words(steps).startswith("better: +0.01")
    assert [one["policy"] for one in rungs_of(steps)] == ["rule", "worse", "smaller", "better", "noisy"]


def test_every_rung_is_held_against_the_one_that_stands() -> None:
    """The third is better than the first, and not than the second, which was taken before it."""
    steps = climbed(rule={"value": 0.8}, best={"value": 0.9}, third={"value": 0.85})
    assert chosen_of(steps)[0] == "best"
    assert steps["third"].gain == pytest.approx(-0.05)


def test_a_rung_that_the_twin_only_guesses_about_is_named_beside_one_that_it_knows() -> None:
    """The first leads a tenth of its requests to queues that the log does not know; the one that is taken none."""
    first = {"value": 0.6, "out_of_support": 0.1}
    steps = climbed(rule=first, poor={"value": 0.4, "out_of_support": 0.2}, clone={"value": 0.7})
    assert chosen_of(steps)[0] == "clone"
    assert "; what the twin says of rule is a guess, for 10% of its decisions" in in_words(steps)
    for known in ({"rule": first | {"out_of_support": 0.04}}, {"rule": {"value": 0.6}}):
        assert "guess" not in in_words(climbed(**known, clone={"value": 0.7}))
    assert "guess" not in in_words(climbed(rule=first, clone={"value": 0.7, "out_of_support": 0.1}))


def test_the_members_must_agree_that_it_is_better() -> None:
    """Better by .02 in the mean, by .04 with one member and by nothing with the other."""
    steps = climbed(rule={"value": 0.9}, split={"value": 0.92, "apart": 0.041, "own": 1e-4})
    assert steps["split"].gain == pytest.approx(0.02, abs=1e-3)
    assert steps["split"].low < 0.0
    assert chosen_of(steps)[0] == "rule"
    assert "too uncertain to leave it; the best other, split, is +0.02" in in_words(steps)
    agreed = climbed(rule={"value": 0.9}, both={"value": 0.92, "apart": 0.03, "own": 1e-4})
    assert chosen_of(agreed)[0] == "both"
    assert agreed["both"].low == pytest.approx(0.005, abs=1e-3)


def test_decisions_at_which_the_twin_guesses_count_as_nothing() -> None:
    """A gain of .05 outweighs guesses at .05 more of the decisions than the held rung makes, worth .9 each; not .06."""
    rule = {"value": 0.9, "out_of_support": 0.01}
    few, many = ({"value": 0.95, "out_of_support": 0.01 + share} for share in (0.05, 0.06))
    assert climbed(rule=rule, few=few)["few"].low == pytest.approx(0.05 - 0.05 * (0.9 + LUCK.mean()))
    assert chosen_of(climbed(rule=rule, few=few))[0] == "few"
    assert chosen_of(climbed(rule=rule, many=many))[0] == "rule"
    fewer = {"value": 0.91, "out_of_support": 0.0}  # and nothing is given for guessing less
    assert climbed(rule=rule, fewer=fewer)["fewer"].low == pytest.approx(0.01)


def test_in_a_twin_that_failed_its_certificate_small_gains_do_not_count() -> None:
    """In worlds where later requests slow running ones the twin fails, and yet ranks well what is far apart."""

    def untrusted(**policies: float | dict[str, float]):
        rungs = [
            Rung(
                name,
                0,
                NO_ENTRANTS,
                policy if isinstance(policy, dict) else {"value": policy},
                name.startswith("rule"),
                name.startswith("correction"),
            )
            for name, policy in policies.items()
        ]
        return climb(rungs, judged, is_trusted=False)

    steps = untrusted(rule=0.5, network=0.52, rule_tuned=0.504, better=0.54)
    assert [name for name, step in steps.items() if step.taken] == ["rule", "rule_tuned", "better"]
    assert steps["network"].low > 0.0  # sure, which is enough of a rule, and in a trusted twin
    assert in_words(steps, is_trusted=False).endswith("rule's; the twin failed its certificate")
    near = untrusted(rule=0.5, correction_alike=0.504, correction=0.506, correction_of_that=0.512)
    assert [name for name, step in near.items() if step.taken] == ["rule", "correction"]
    noisy = {"own": 0.3, "seed": 2}
    alone = judged(None, {"value": 0.5} | noisy).mean - judged(None, {"value": 0.5}).mean
    few, many = (
        untrusted(rule=0.5, rule_noisy={"value": 0.5 + gain - alone} | noisy) for gain in (0.004, 0.006)
    )
    assert max(few["rule_noisy"].low, many["rule_noisy"].low) < 0.0
    assert [chosen_of(steps)[0] for steps in (few, many)] == ["rule", "rule_noisy"]
    stays = untrusted(rule=0.5, network=0.52)
    assert chosen_of(stays)[0] == "rule"
    assert "failed its certificate, and shows too little, to leave it" in in_words(stays, is_trusted=False)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_tuned_form_of_the_rule_that_is_held_is_taken_unless_it_is_surely_worse(is_trusted: bool) -> None:
    """A difference of .002 less, with a standard error of .01 over 64 windows, and one of .02 less."""

    def chosen(gain: float, held: str = "rule") -> str:
        rungs = [
            Rung(held, 0, NO_ENTRANTS, None, is_rule=True),
            Rung("tuned", 0, NO_ENTRANTS, gain, is_rule=True, tunes="rule"),
        ]
        steps = climb(rungs, judged_with_error, is_trusted=is_trusted)
        if steps["tuned"].taken:
            assert "-0.0020 over the rung below, not surely worse, perhaps" in in_words(steps)
        return chosen_of(steps)[0]

    assert chosen(-0.002) == "tuned"
    assert chosen(-0.02) == "rule"
    assert chosen(-0.002, held="another") == "another"


def test_the_tuned_form_of_a_rule_is_held_back_by_guesses_only_where_its_value_is_one() -> None:
    """Better by .005, with .03 of its decisions on queues that the log does not know, or with .06."""
    start = Rung("rule", 0, NO_ENTRANTS, {"value": 0.9}, is_rule=True)
    for guessed, wanted in ((0.03, "tuned"), (0.06, "rule")):
        params = {"value": 0.905, "out_of_support": guessed}
        steps = climb([start, Rung("tuned", 0, NO_ENTRANTS, params, True, tunes="rule")], judged)
        assert chosen_of(steps)[0] == wanted
        assert chosen_of(climb([start, Rung("other", 0, NO_ENTRANTS, params, True)], judged))[0] == "rule"


def test_a_rule_is_taken_for_what_is_expected_and_a_network_is_not() -> None:
    """Better by .02 in the mean, lost in noise; decisions that are guessed, worth some .8 each, count half."""
    start = Rung("rule", 0, NO_ENTRANTS, {"value": 0.8}, is_rule=True)
    noisy = {"value": 0.82, "own": 0.3, "seed": 2}
    alone = judged(None, noisy).mean - judged(None, start.params).mean

    def beside(is_rule: bool, **params: float) -> dict[str, RungStep]:
        return climb([start, Rung("other", 0, NO_ENTRANTS, noisy | params, is_rule)], judged)

    as_rule, as_network = beside(True), beside(False)
    assert as_rule["other"].gain == as_network["other"].gain == pytest.approx(alone)
    assert as_rule["other"].low == as_network["other"].low < 0.0 < alone
    assert [chosen_of(steps)[0] for steps in (as_rule, as_network)] == ["other", "rule"]
    assert "likely better, perhaps -0.0" in in_words(as_rule)
    worth = 0.5 * judged(None, start.params).mean
    assert chosen_of(beside(True, out_of_support=0.9 * alone / worth))[0] == "other"
    assert chosen_of(beside(True, out_of_support=1.1 * alone / worth))[0] == "rule"


@pytest.mark.parametrize(
    ("gain", "over_rule", "over_network"), [(0.002, False, False), (0.009, True, False), (0.015, True, True)]
)
def test_what_corrects_a_rule_is_taken_over_a_rule_at_odds_of_two_to_one(
    gain: float, over_rule: bool, over_network: bool
) -> None:
    """Gains with a standard error of .01 over 64 windows: t is .44 for 67 % to one side and 1.30 for 90 %."""
    for is_rule, wanted in ((True, over_rule), (False, over_network)):
        rungs = [
            Rung("held", 0, NO_ENTRANTS, None, is_rule),
            Rung("residual", 0, NO_ENTRANTS, gain, corrects_rule=True),
        ]
        steps = climb(rungs, judged_with_error)
        assert steps["residual"].taken == wanted, is_rule
        failed = climb(rungs, judged_with_error, is_trusted=False)
        assert failed["residual"].taken == (is_rule and over_network)  # at 90 %
        assert steps["residual"].low == pytest.approx(gain - 0.01295, abs=1e-5)


def test_what_gains_by_letting_late_requests_wait_is_told_and_may_be_ruled_out() -> None:
    """Better by .05 at 1.7 times the first rung's mean response; within 1.5 times is what comes after it."""
    policies = {"rule": {"value": 0.8}, "waits": {"value": 0.85, "response_s": 17.0}}
    assert in_words(climbed(**policies)).endswith("mean response 1.70 times rule's")
    assert chosen_of(climbed(1.8, **policies))[0] == "waits"
    bounded = climbed(1.5, **policies)
    assert chosen_of(bounded)[0] == "rule"
    assert in_words(bounded) == "rule: the best other, waits, is +0.0500 at 1.70 times its mean response"
    policies["other"] = {"value": 0.82, "response_s": 14.0}
    assert chosen_of(climbed(1.5, **policies))[0] == "other"
    shown = rungs_of(climbed(1.5, **policies))
    assert [one["too_slow"] for one in shown] == [False, True, False]
    assert shown[1]["response_s"] / shown[0]["response_s"] == pytest.approx(1.7)


def test_with_one_window_the_first_rung_stays_and_nothing_is_made_up() -> None:
    steps = climbed(rule={"value": 0.5, "windows": 1}, other={"value": 0.9, "windows": 1})
    assert chosen_of(steps)[0] == "rule"
    assert rungs_of(steps)[1]["low"] is None
    assert in_words(steps).endswith("other, is +0.4000, of too few windows for an interval")
    worse = climbed(rule={"value": 0.5}, other={"value": 0.4})
    assert in_words(worse) == "rule: no other rung was better"


def test_the_interval_is_student_s_over_windows_that_both_settled() -> None:
    rng = np.random.default_rng(3)
    one, two = rng.standard_normal((2, 1, 12))
    expected = ttest_rel(one[0, 1:], two[0, 1:])
    one[0, 0] = np.nan
    gain = gain_of(RungResult(one, 0.0, one), RungResult(two, 0.0, two))
    assert gain.mean == pytest.approx(np.mean(one[0, 1:] - two[0, 1:]))
    assert gain.low == pytest.approx(expected.confidence_interval(0.8).low)  # 90 % to one side
    assert gain.guessed == 0.0


def test_seeds_are_chosen_by_value() -> None:
    stacked = {"value": np.array([0.1, 0.3, 0.2])}
    assert select_row(judged, NO_ENTRANTS, stacked) == 1


def test_a_ladder_that_is_killed_goes_on_with_the_rung_that_is_missing(tmp_path: Path) -> None:
    rungs = [Rung(str(value), 0, NO_ENTRANTS, {"value": value}) for value in (0.5, 0.3, 0.9)]
    asked: list[float] = []

    def dying(network: Actor, params: PyTree) -> RungResult:
        asked.append(params["value"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return judged(network, params)

    with pytest.raises(KeyboardInterrupt):
        climb(rungs, dying, keep=tmp_path)
    found = climb(rungs, dying, keep=tmp_path)
    assert asked == [0.5, 0.3, 0.3, 0.9]
    assert str(found) == str(climb(rungs, judged))


def beside_the_behaviour(logged: float, *, is_trusted: bool, correction: float = 0.53) -> dict[str, RungStep]:
    """A rule of .5, what corrects it, and a clone of the behaviour of .52 in the twin; the log's own value is known of
    all windows but one."""
    rungs = [
        Rung("rule", 0, NO_ENTRANTS, {"value": 0.5}, is_rule=True),
        Rung("residual", 0, NO_ENTRANTS, {"value": correction, "own": 1e-4}, corrects_rule=True),
        Rung("bc_greedy", 0, NO_ENTRANTS, {"value": 0.52}),
    ]
    known = np.append(np.full(63, logged) + LUCK.mean(axis=0)[:63], np.nan)
    return climb(rungs, judged, is_trusted=is_trusted, logged=known, clone="bc_greedy")


def test_in_a_failed_twin_the_clone_is_handed_over_where_every_rung_loses_to_the_logged_behaviour() -> None:
    lost = beside_the_behaviour(0.6, is_trusted=False)
    assert [name for name, step in lost.items() if step.taken] == ["rule", "residual"]
    assert chosen_of(lost)[0] == "bc_greedy"
    words = in_words(lost, is_trusted=False)
    assert words.startswith("bc_greedy: the twin failed its certificate")
    assert "residual, +0.0100 over its clone" in words
    assert "bc_greedy IS NO BETTER in the twin than the logged decisions were in the log: 0.5" in words
    assert rungs_of(lost)[1]["over_log"] == pytest.approx(-0.07, abs=1e-3)
    # Above both; far above the clone, where the level is off
    for logged, correction in ((0.4, 0.53), (0.6, 0.56)):
        kept = beside_the_behaviour(logged, is_trusted=False, correction=correction)
        assert chosen_of(kept)[0] == "residual"
        assert ("residual IS NO BETTER" in in_words(kept, is_trusted=False)) == (logged == 0.6)
    alike = beside_the_behaviour(0.4, is_trusted=False, correction=0.52)
    assert chosen_of(alike)[0] == "bc_greedy"
    assert not beside_the_log(alike)


def test_in_a_twin_that_passed_the_choice_stays_and_the_value_of_the_log_is_said() -> None:
    lost = beside_the_behaviour(0.6, is_trusted=True)
    assert chosen_of(lost)[0] == "residual"
    assert "residual IS NO BETTER in the twin than" in in_words(lost)
    assert not beside_the_log(beside_the_behaviour(0.4, is_trusted=True))
    unknown = climbed(rule={"value": 0.5}, other={"value": 0.9})
    assert not beside_the_log(unknown)
    assert rungs_of(unknown)[1]["over_log"] is None


def test_what_the_log_was_worth_in_an_episode_is_the_mean_of_its_settled_requests() -> None:
    row = np.array([[0, 2], [1, 3], [-1, 4]])  # of two windows; 3 and 4 in the second
    windows = SimpleNamespace(row=row, valid=lambda: row >= 0, driven_out=None, repeats=None)
    settled = np.array([[[True, True]], [[True, False]], [[False, True]]])
    history = SimpleNamespace(active=np.ones_like(settled), settled=settled, reward=1.0 + row[:, None])
    episodes = SimpleNamespace(row=np.array([[0, 3], [1, 3], [2, 3], [4, 3]]), length=np.array([3, 1]))
    found = logged_value(history, windows, episodes)
    np.testing.assert_array_equal(found, [2.0, np.nan])  # the mean of 1, 2 and 3; request 3 did not settle
    for name in ("driven_out", "repeats"):  # episodes begin without what waited, or have other requests
        assert logged_value(history, SimpleNamespace(**vars(windows) | {name: row < 2}), episodes) is None
