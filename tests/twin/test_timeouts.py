"""Runs that are cut off: read off a log, kept apart from failures of nodes, drawn as long runs that fail."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from evaluation.problems.placement.dependences import dependences_of
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.hazards import RunLog, without_timeouts
from twin.placement.history import observed_answers
from twin.placement.learned import cut_off
from twin.placement.outcome_model import DrawnAnswers
from twin.placement.timeouts import fit_timeouts
from twin.placement.types import COMPLETED, FAILED

LIMIT_S = 60.0


def logged(seed: int, count: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Services, run times and statuses: 1 is cut off, of 2 some fail on their way, of 3 all that run for long."""
    rng = np.random.default_rng(seed)
    service, run_s = rng.integers(1, 4, count), rng.exponential(30.0, count)
    cut = (service == 1) & (run_s > LIMIT_S)
    fails = cut | ((service == 2) & (rng.random(count) < 0.1)) | ((service == 3) & (run_s > LIMIT_S))
    run_s = np.where(
        cut, LIMIT_S + 0.1 * rng.random(count), np.where(rng.random(count) < 0.01, np.nan, run_s)
    )
    return service, run_s, np.where(fails, FAILED, COMPLETED)


def test_limits_are_read_off_where_failed_runs_end() -> None:
    for seed in range(5):
        service, run_s, status = logged(seed)
        found = fit_timeouts(service, run_s, status, 4)
        np.testing.assert_allclose(found, [0.0, LIMIT_S, 0.0, 0.0], rtol=2e-3)
        assert fit_timeouts(service[:60], run_s[:60], status[:60], 4) == ()
        assert fit_timeouts(service, run_s, np.full_like(status, COMPLETED), 4) == ()


def test_no_node_has_lost_what_was_cut_off() -> None:
    service, run_s, status = logged(0)
    zero = np.zeros(len(service), int)
    log = RunLog(run_s, run_s, run_s, status, service, zero, zero, run_s, run_s, zero, zero)
    limits, found = without_timeouts(log, 4)
    assert limits[1] > 0.0
    assert np.array_equal(found.status == FAILED, (status == FAILED) & (service != 1))
    none = log._replace(status=np.full_like(status, COMPLETED))
    assert without_timeouts(none, 4)[0] == ()
    assert without_timeouts(none, 4)[1] is none


def test_what_was_cut_off_would_have_run_at_least_so_long() -> None:
    plain = made_cluster()
    rows = made_rows(np.random.default_rng(0), plain, 60)
    service, node = rows.request.service, rows.node >= 0
    limits = np.where(np.arange(len(plain.services)) == 1, 5.0, 0.0)
    finish_s = np.where(service == 1, rows.start_s + 5.0, rows.finish_s)
    rows = rows._replace(status=np.where(node, FAILED, rows.status), finish_s=finish_s)
    windows = cut_windows(rows, np.ones(60, bool), made_encoding(plain), num_steps=60)
    before = observed_answers(windows, plain)
    after = observed_answers(windows, replace(plain, run_limit_s=tuple(limits.tolist())))
    cut = np.asarray(before.failed & before.started) & (windows.request.service == 1)
    assert cut.any()
    assert not after.failed[cut].any()
    assert not after.finished[cut].any()
    np.testing.assert_allclose(after.run_s[cut], 5.0)
    assert np.array_equal(after.failed[~cut], before.failed[~cut])


def test_drawn_runs_end_at_the_limit_and_fail() -> None:
    cluster = replace(made_cluster(), run_limit_s=(0.0, 5.0, 0.0))
    no = jnp.zeros(3, bool)
    drawn = DrawnAnswers(~no, no, no, jnp.zeros(3), jnp.array([4.0, 7.0, 7.0]))
    request = made_rows(np.random.default_rng(0), cluster, 3).request._replace(service=jnp.array([1, 1, 2]))
    found = cut_off(cluster, request, drawn)
    assert found.run_s.tolist() == [4.0, 5.0, 7.0]
    assert found.failed.tolist() == [False, True, False]
    assert cut_off(made_cluster(), request, drawn) is drawn


def test_an_encoding_keeps_them_and_says_so() -> None:
    plain = made_cluster()
    cluster = replace(plain, run_limit_s=(0.0,) * (len(plain.services) - 1) + (5.0,))
    assert Encoding.from_json(made_encoding(cluster).to_json()).cluster.run_limit_s == cluster.run_limit_s
    assert "run_limit_s" not in made_encoding(plain).to_json()
    assert any(f"{plain.services[-1]} after 5 s" in each for each in dependences_of(cluster))
