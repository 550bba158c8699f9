"""Requests that are given up while they wait: read off a log, learned as longer waits, drawn at their limit."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from evaluation.problems.placement.dependences import dependences_of
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.history import observed_answers
from twin.placement.learned import as_fate, cut_off
from twin.placement.outcome_model import DrawnAnswers
from twin.placement.patience import Patience, fit_patience
from twin.placement.types import DROPPED

LIMIT_S = 40.0


def logged(seed: int, limit_s: np.ndarray, count: int = 2000) -> tuple[np.ndarray, ...]:
    """Services, waits, drops, deadlines; waits of service 1 end at `limit_s` [count], of 2 some end on their way."""
    rng = np.random.default_rng(seed)
    service, wait_s = rng.integers(1, 4, count), rng.exponential(20.0, count)
    given_up = (service == 1) & (wait_s > limit_s)
    leaves = given_up | ((service == 2) & (rng.random(count) < 0.1))
    waited_s = np.where(given_up, limit_s + 1e-3 * rng.random(count), wait_s)
    return service, np.where(rng.random(count) < 0.01, np.nan, waited_s), leaves


def test_a_limit_is_read_off_where_waits_of_a_service_end() -> None:
    for seed in range(5):
        service, waited_s, leaves = logged(seed, np.full(2000, LIMIT_S))
        deadline_s = np.random.default_rng(seed + 50).uniform(20.0, 200.0, 2000)
        found = fit_patience(service, waited_s, leaves, deadline_s, 4)
        assert not found.drops_late
        np.testing.assert_allclose(found.wait_limit_s, [0.0, LIMIT_S, 0.0, 0.0], rtol=1e-3)
        assert fit_patience(service[:40], waited_s[:40], leaves[:40], deadline_s[:40], 4) == Patience()
        assert fit_patience(service, waited_s, np.zeros(2000, bool), deadline_s, 4) == Patience()


def test_deadlines_are_read_off_where_waits_end_at_them() -> None:
    for seed in range(5):
        deadline_s = np.random.default_rng(seed + 50).uniform(5.0, 60.0, 2000)
        service, waited_s, leaves = logged(seed, deadline_s)
        only = (service != 2) & ~((service == 3) & (waited_s > deadline_s))
        found = fit_patience(*(leaf[only] for leaf in (service, waited_s, leaves, deadline_s)), 4)
        assert found == Patience(drops_late=True)
        some = with_some_endless(seed, deadline_s)
        kept = only & ~(leaves & np.isinf(some))
        assert fit_patience(*(leaf[kept] for leaf in (service, waited_s, leaves, some)), 4).drops_late
        # Others wait beyond their deadlines and start all the same: so it is no rule
        assert not fit_patience(service, waited_s, leaves, deadline_s, 4).drops_late


def test_few_that_are_given_up_at_their_deadlines_are_enough_but_on_clocks_of_whole_seconds() -> None:
    deadline_s = np.random.default_rng(7).uniform(5.0, 60.0, 2000)
    service, waited_s, leaves = logged(7, deadline_s)
    some = np.flatnonzero((service == 1) & leaves & np.isfinite(waited_s))
    others = np.flatnonzero((service != 2) & ~leaves & ~(waited_s > deadline_s))

    def found(number: int, tick_s: float = 0.0) -> Patience:
        rows = np.concatenate([some[:number], others])
        seen_s = np.floor(waited_s[rows] / tick_s) * tick_s if tick_s else waited_s[rows]
        return fit_patience(service[rows], seen_s, leaves[rows], deadline_s[rows], 4)

    assert found(5).drops_late
    assert not found(4).drops_late
    assert not found(19, 1.0).drops_late
    assert found(20, 1.0).drops_late


def with_some_endless(seed: int, deadline_s: np.ndarray) -> np.ndarray:
    """The same deadlines; a third of the requests have none."""
    return np.where(np.random.default_rng(seed + 90).random(len(deadline_s)) < 0.3, np.inf, deadline_s)


def test_clocks_of_whole_seconds_hide_no_limit() -> None:
    rng = np.random.default_rng(3)
    deadline_s = rng.uniform(5.0, 15.0, 3000)
    wait_s = rng.exponential(8.0, 3000)
    waited_s = np.floor(np.minimum(wait_s, deadline_s))
    ones = np.ones(3000, int)
    assert fit_patience(ones, waited_s, wait_s > deadline_s, deadline_s, 2).drops_late


def test_what_was_given_up_would_have_waited_at_least_so_long() -> None:
    plain = made_cluster()
    rows = made_rows(np.random.default_rng(0), plain, 60)
    placed = rows.node >= 0
    dropped = placed & (np.arange(60) % 3 == 0)
    late = dropped & (np.arange(60) % 2 == 0)  # the others leave before
    deadline_s = np.full(60, 50.0, np.float32)
    finish_s = np.where(dropped, rows.arrival_s + np.where(late, 50.0, 10.0), rows.finish_s)
    rows = rows._replace(
        request=rows.request._replace(deadline_s=deadline_s),
        status=np.where(dropped, DROPPED, rows.status),
        start_s=np.where(dropped, np.inf, rows.start_s),
        finish_s=finish_s,
    )
    windows = cut_windows(rows, np.ones(60, bool), made_encoding(plain), num_steps=60)
    before = observed_answers(windows, plain)
    for cluster in (
        replace(plain, drops_late=True),
        replace(plain, wait_limit_s=(50.0,) * len(plain.services)),
    ):
        after = observed_answers(windows, cluster)
        gone = late[windows.row]
        assert gone.any()
        assert before.dropped[gone].all()
        assert not after.dropped[gone].any()
        assert not after.started[gone].any()
        np.testing.assert_allclose(after.wait_s[gone], 50.0, rtol=1e-5)
        assert np.array_equal(after.dropped[~gone], before.dropped[~gone])
        assert np.array_equal(after.wait_s[~gone], before.wait_s[~gone])


def test_drawn_waits_end_at_the_limit_with_nothing_run() -> None:
    plain = made_cluster()
    no = jnp.zeros(3, bool)
    drawn = DrawnAnswers(~no, no, no, jnp.array([4.0, 7.0, 7.0]), jnp.ones(3))
    request = made_rows(np.random.default_rng(0), plain, 3).request._replace(
        service=jnp.array([1, 1, 2]), deadline_s=jnp.array([6.0, 6.0, jnp.inf])
    )
    found = cut_off(replace(plain, drops_late=True), request, drawn)
    assert found.wait_s.tolist() == [4.0, 6.0, 7.0]
    assert found.dropped.tolist() == [False, True, False]
    fate = as_fate(found, jnp.zeros(3))
    assert fate.status[1] == DROPPED
    assert fate.finish_s[1] == 6.0
    assert jnp.isinf(fate.start_s[1])
    of_service = cut_off(replace(plain, wait_limit_s=(0.0, 5.0, 0.0)), request, drawn)
    assert of_service.wait_s.tolist() == [4.0, 5.0, 7.0]
    assert of_service.dropped.tolist() == [False, True, False]
    assert cut_off(plain, request, drawn) is drawn


def test_an_encoding_keeps_them_and_says_so() -> None:
    plain = made_cluster()
    limits = (0.0,) * (len(plain.services) - 1) + (5.0,)
    for cluster, words in (
        (replace(plain, drops_late=True), "not begun by their deadline"),
        (replace(plain, wait_limit_s=limits), f"{plain.services[-1]} after 5 s"),
    ):
        found = Encoding.from_json(made_encoding(cluster).to_json()).cluster
        assert (found.drops_late, found.wait_limit_s) == (cluster.drops_late, cluster.wait_limit_s)
        assert any(words in each for each in dependences_of(cluster))
    assert "drops_late" not in made_encoding(plain).to_json()
    assert "wait_limit_s" not in made_encoding(plain).to_json()
