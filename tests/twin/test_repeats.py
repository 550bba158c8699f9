"""Requests that repeat failed ones: read off a log, and in episodes of a twin only where something fails there."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.closed_logs import first_legal_played
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.history import answered_environment
from twin.placement.repeated_arrivals import following_of
from twin.placement.repeats import fit_repeats, is_repeat
from twin.placement.responses import Answers
from twin.placement.types import COMPLETED, FAILED, REJECTED, Fate, Repeats
from twin.placement.windows import Windows, joined

REPEATS = Repeats(1.0, 5.0, 60.0)


def log_of(rng: np.random.Generator, chance: float, num: int = 6000, fails: float = 0.1):
    """Arrivals, ends, statuses, agents and services of requests that come again with some chance when they fail."""
    made = [(at_s, *rng.integers((8, 3)).tolist()) for at_s in np.sort(rng.uniform(0.0, 86_400.0, num))]
    rows = []
    while made:
        at_s, agent, service = made.pop()
        ends_s, failed = at_s + rng.uniform(5.0, 40.0), rng.random() < fails
        rows.append((at_s, ends_s, FAILED if failed else COMPLETED, agent, service))
        if failed and rng.random() < chance:
            made.append((ends_s + rng.exponential(5.0), agent, service))
    rows.sort()
    return tuple(np.array(column) for column in zip(*rows, strict=True))


@pytest.mark.parametrize("chance", [0.5, 0.9])
def test_how_often_and_when_clients_try_again_is_found(chance):
    log = log_of(np.random.default_rng(0), chance)
    found = fit_repeats(*log)
    assert found.chance == pytest.approx(chance, abs=0.06)
    assert found.delay_s == pytest.approx(5.0, rel=0.25)
    num_failed = int((log[2] == FAILED).sum())
    assert is_repeat(found, *log).sum() == pytest.approx(chance * num_failed, rel=0.1)


def test_failures_that_nobody_repeats_are_no_repeats():
    for seed in range(10):
        assert fit_repeats(*log_of(np.random.default_rng(seed), 0.0, 3000)) is None
    hidden = log_of(np.random.default_rng(0), 0.9)
    assert fit_repeats(*hidden[:3], np.full(len(hidden[0]), -1), hidden[4]) is None


def repeating_windows(num_steps: int = 6) -> tuple[Encoding, Windows]:
    """Windows of one request every 100 s; the second and the third repeat others."""
    cluster = replace(made_cluster(), repeats=REPEATS)
    encoding = made_encoding(cluster)
    rows = made_rows(np.random.default_rng(0), cluster, 2 * num_steps)
    arrival_s = 100.0 * np.arange(2 * num_steps)
    rows = rows._replace(arrival_s=arrival_s, node=np.zeros(2 * num_steps, np.int32))
    windows = cut_windows(rows, np.ones(2 * num_steps, bool), encoding, num_steps=num_steps)
    repeats = np.zeros(windows.row.shape, bool)
    repeats[1:3] = True
    return encoding, windows._replace(repeats=repeats)


def answering(status: int) -> Answers:
    """All offers are answered alike, after 10 s."""

    def answer(_key, memory, state, node, _pending):
        now_s = jnp.broadcast_to(state.clock_s[None], node.shape)
        is_taken = jnp.full(node.shape, status != REJECTED)
        return memory, Fate(is_taken, now_s, now_s + 10.0, jnp.full(node.shape, status, jnp.int32))

    return Answers(lambda _key, _streams: (), answer)


def arrivals_of(status: int, *, repeats: bool = True, num_steps: int = 40) -> list[np.ndarray]:
    """When requests arrived in either of two windows."""
    encoding, windows = repeating_windows()
    system = answered_environment(windows, encoding, answering(status), reacts=repeats)
    played = first_legal_played(system, num_steps, 2)
    return [np.asarray(played.decision_info.arrival_s)[played.active[:, 0, one], 0, one] for one in (0, 1)]


@pytest.mark.slow
def test_logged_repeats_do_not_come_where_nothing_fails():
    for one, kept in zip(arrivals_of(COMPLETED), ((0, 3, 4, 5), (0, 3, 4, 5)), strict=True):
        np.testing.assert_allclose(one, 100.0 * np.array(kept))
    for one in arrivals_of(REJECTED):
        np.testing.assert_allclose(one, 100.0 * np.array([0, 3, 4, 5]))
    for one in arrivals_of(COMPLETED, repeats=False):
        np.testing.assert_allclose(one, 100.0 * np.arange(6))


@pytest.mark.slow
def test_every_failure_draws_a_repeat_of_the_same_request_a_while_after_its_end():
    for one in arrivals_of(FAILED):
        first = one[one < 300.0]  # one after another: each comes after the end of the one before
        assert len(first) > 10
        assert np.diff(first).min() >= 10.0
        assert np.diff(first).mean() == pytest.approx(15.0, rel=0.4)
        assert np.all(np.diff(one) >= 0.0)


def test_windows_know_what_repeats_whatever_they_are_joined_with():
    encoding, windows = repeating_windows()
    following = np.asarray(following_of(windows))
    np.testing.assert_array_equal(following[:, 0], [3, 3, 3, 4, 5, 6])
    both = joined([windows, windows])
    np.testing.assert_array_equal(np.asarray(following_of(both)), np.tile(following, 2))
    assert Encoding.from_json(encoding.to_json()).cluster.repeats == REPEATS
    assert '"repeats"' not in made_encoding(made_cluster()).to_json()
