"""The runner's filter of run times against plain numbers: pairs and nodes, by random runs and pauses."""

import numpy as np
import pytest

from offline_rl.runner.run_levels import KnownRunDynamics, LedgerRunLevels
from tests.reference.levels_loop import DYNAMICS, LevelsLoop


@pytest.mark.parametrize("age_s", [0.0, 30 * 86_400.0])
def test_levels_are_those_of_plain_numbers(age_s):
    random, variance = np.random.default_rng(1), np.full((3, 4), 0.1)
    levels = LedgerRunLevels(KnownRunDynamics(**vars(DYNAMICS)), variance, 1e9)
    loop, clock_s = LevelsLoop(4, age_s), 0.0
    levels.move_to(1e9 + age_s)
    for _ in range(200):
        ended = [
            (int(random.integers(4)), int(random.integers(3)), float(random.normal(0.4, 1.0)))
            for _ in range(random.integers(0, 4))
        ]
        told: dict[int, list[float]] = {}
        for node, service, residual in ended:
            pair = loop.pair.get((service, node), (0.0, 0.0))[0]
            levels.ended(node, service, residual, pair)
            told.setdefault(node, []).append(residual - pair)
        elapsed_s = float(random.exponential(40.0))
        clock_s += elapsed_s
        levels.move_to(1e9 + age_s + clock_s)
        loop.move_on(elapsed_s, told)
        for node, service, residual in ended:
            loop.pair_ran(service, node, clock_s, residual)
        for service in range(3):
            wanted = [loop.mean(service, node) for node in range(4)]
            np.testing.assert_allclose(levels.of(service), wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(levels.pair).max() > 0.05


def test_what_is_remembered_is_what_was_learned():
    one, two = (
        LedgerRunLevels(KnownRunDynamics(**vars(DYNAMICS)), np.full((2, 3), 0.1), 0.0) for _ in range(2)
    )
    one.ended(0, 1, 1.0, 0.0)
    one.move_to(10.0)
    two.remember(one, [2], [0])
    np.testing.assert_array_equal(two.of(1)[2], one.of(1)[0])
    assert two.of(1)[0] == 0.0


def test_a_ledger_that_takes_over_another_is_not_older_than_it():
    """The second, begun a month later, takes over what the first has learned, and with it its doubt."""
    month_s = 30 * 86_400.0
    one, two = (
        LedgerRunLevels(KnownRunDynamics(**vars(DYNAMICS)), np.full((1, 1), 0.1), 0.0) for _ in range(2)
    )
    one.move_to(3_600.0)
    for levels in (one, two):
        levels.move_to(month_s)
    two.remember(one, [0], [0])
    for levels in (one, two):
        levels.ended(0, 0, 1.0, 0.0)
        levels.move_to(month_s + 1.0)
    np.testing.assert_allclose(two.pair, one.pair)


@pytest.mark.parametrize("is_begun", [True, False])
def test_levels_that_are_taken_over_after_a_pause_are_those_that_would_have_gone_on(is_begun):
    """They fade and grow uncertain while no ledger is open, and runs that ended before it closed count."""
    later_s = 5 * 86_400.0
    one, two, gone_on = (
        LedgerRunLevels(KnownRunDynamics(**vars(DYNAMICS)), np.full((1, 2), 0.1), 0.0) for _ in range(3)
    )
    for levels in (one, gone_on):
        levels.move_to(0.0)
        levels.ended(0, 0, 1.0, 0.0)
        levels.move_to(30.0)
        levels.ended(1, 0, -1.0, 0.0)
    gone_on.move_to(later_s if is_begun else 30.0)  # where nothing is decided yet, as of the last decision
    gone_on.move_to(later_s)
    if is_begun:
        two.move_to(later_s)
    two.remember(one, [0, 1], [0, 1])
    two.move_to(later_s)
    for levels in (two, gone_on):
        np.testing.assert_allclose(levels.of(0), gone_on.of(0))
        levels.ended(0, 0, 0.5, 0.0)
        levels.move_to(later_s + 60.0)
    np.testing.assert_allclose(two.of(0), gone_on.of(0))
    np.testing.assert_allclose(two.pair_variance + two._wandered, gone_on.pair_variance + gone_on._wandered)
    np.testing.assert_allclose(two.node_variance, gone_on.node_variance)
