"""Runs that are cut off: read off a log, kept apart from failures of nodes, drawn as long runs that fail; policies and
bundles see the chance that a run ends before."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.judges.bundle_policies import encoding_of
from evaluation.problems.placement.dependences import dependences_of
from logs_schema.errors import ProductError
from offline_rl.placement_contract import placement_contract, setting_of
from offline_rl.runner import Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import RULE, made_policy, made_system
from tests.offline_rl.retelling import needs_setting
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.hazards import RunLog, fit_runs_and_hazards, without_timeouts
from twin.placement.history import observed_answers
from twin.placement.learned import AnswerModel, cut_off
from twin.placement.outcome_model import (
    NUM_UNIFORMS,
    AnswerParameters,
    DrawnAnswers,
    Mixture,
    sample_answer,
)
from twin.placement.timeouts import Timeouts, fit_chance, fit_timeouts, run_limits_s
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


def unstated(run_s: np.ndarray) -> np.ndarray:
    """No requested run times."""
    return np.full_like(run_s, np.nan)


def test_limits_are_read_off_where_failed_runs_end() -> None:
    for seed in range(5):
        service, run_s, status = logged(seed)
        fails = status == FAILED
        found = fit_timeouts(service, run_s, fails, unstated(run_s), 4)
        assert found is not None
        assert not found.at_requested
        np.testing.assert_allclose(found.of_service, [0.0, LIMIT_S, 0.0, 0.0], rtol=2e-3)
        assert fit_timeouts(service[:60], run_s[:60], fails[:60], unstated(run_s)[:60], 4) is None
        assert fit_timeouts(service, run_s, np.zeros_like(fails), unstated(run_s), 4) is None


@pytest.mark.parametrize(
    ("share_of_killed", "overrun", "count", "found"),
    [
        (1.0, 1.0, 2000, True), (1.0, 1.05, 2000, True), (0.5, 1.0, 2000, False), (1.0, 1.5, 2000, False),
        (1.0, 1.0, 60, False),
    ],
)  # fmt: skip
def test_what_is_requested_is_a_limit_where_runs_fail_as_they_reach_it(
    share_of_killed: float, overrun: float, count: int, found: bool
) -> None:
    rng = np.random.default_rng(0)
    requested_s = rng.choice([600.0, 1800.0, 3600.0], count)
    work_s = requested_s * rng.lognormal(-0.8, 0.6, count)
    reaches = work_s >= requested_s
    fails = reaches & (rng.random(count) < share_of_killed) | (rng.random(count) < 0.05)
    run_s = np.where(reaches, overrun * requested_s, work_s)
    timeouts = fit_timeouts(np.ones(count, int), run_s, fails, requested_s, 2)
    assert (timeouts is not None and timeouts.at_requested) == found
    if timeouts is not None:
        limits_s = timeouts.limit_s(np.ones(2, int), np.array([600.0, np.nan]))
        assert limits_s.tolist() == [600.0, np.inf]


def test_the_chance_to_end_before_the_limit_is_that_of_the_log() -> None:
    rng = np.random.default_rng(0)
    usual_s = rng.uniform(10.0, 1000.0, 20_000)
    limit_s = np.where(rng.random(20_000) < 0.1, np.inf, usual_s * rng.lognormal(0.5, 0.5, 20_000))
    runs_s = 1.1 * usual_s * np.exp(rng.logistic(0.0, 0.25, 20_000))
    slope, offset = fit_chance(limit_s, usual_s, runs_s >= limit_s)
    np.testing.assert_allclose([slope, offset], [4.0, -4.0 * np.log(1.1)], rtol=0.1)
    chance = Timeouts((), True, slope, offset).chance(limit_s, usual_s)
    near = (limit_s / usual_s > 1.0) & (limit_s / usual_s < 1.2)
    np.testing.assert_allclose(chance[near].mean(), (runs_s < limit_s)[near].mean(), atol=0.02)
    assert (chance[np.isinf(limit_s)] == 1.0).all()
    slope, offset = fit_chance(limit_s, usual_s, usual_s >= limit_s)  # runs that do not scatter at all
    sharp = Timeouts((), True, slope, offset).chance(np.array([50.0, 200.0]), np.full(2, 100.0))
    np.testing.assert_allclose(sharp, [0.0, 1.0], atol=1e-3)


def test_no_node_has_lost_what_was_cut_off() -> None:
    service, run_s, status = logged(0)
    zero, asked_s = np.zeros(len(service), int), unstated(run_s)
    log = RunLog(run_s, run_s, run_s, status, service, zero, zero, run_s, run_s, zero, zero, asked_s)
    timeouts, found = without_timeouts(log, 4)
    assert timeouts is not None
    assert timeouts.of_service[1] > 0.0
    assert np.array_equal(found.status == FAILED, (status == FAILED) & (service != 1))
    none = log._replace(status=np.full_like(status, COMPLETED))
    assert without_timeouts(none, 4)[0] is None
    assert without_timeouts(none, 4)[1] is none


def test_slow_nodes_look_no_quicker_for_what_is_cut_off_there() -> None:
    rng, count = np.random.default_rng(0), 4000
    node, zero, one = rng.integers(0, 2, count), np.zeros(count, int), np.ones(count, int)
    asked_s = 100.0 * rng.lognormal(0.6, 0.4, count)
    work_s = np.where(node == 1, 200.0, 100.0) * rng.lognormal(0.0, 0.3, count)
    cut, run_s = work_s >= asked_s, np.minimum(work_s, asked_s)
    arrival_s, status = np.cumsum(np.full(count, 50.0)), np.where(cut, FAILED, COMPLETED)
    log = RunLog(
        arrival_s,
        arrival_s,
        arrival_s + run_s,
        status,
        one,
        zero,
        node,
        run_s,
        np.full(count, 100.0),
        zero,
        zero,
        asked_s,
    )
    tables, hazard, timeouts, seen_s = fit_runs_and_hazards(log, 1e9, (2, 2), ("a", "b"))
    assert timeouts is not None
    assert hazard == ()
    assert cut.mean() > 0.3
    np.testing.assert_array_equal(seen_s, run_s)
    ratio = tables.ratios.ratio[1]
    np.testing.assert_allclose(ratio[1] / ratio[0], 2.0, rtol=0.05)


def test_what_was_cut_off_would_have_run_at_least_so_long() -> None:
    plain = made_cluster()
    rows = made_rows(np.random.default_rng(0), plain, 60)
    service, node = rows.request.service, rows.node >= 0
    finish_s = np.where(service == 1, rows.start_s + 5.0, rows.finish_s)
    rows = rows._replace(status=np.where(node, FAILED, rows.status), finish_s=finish_s)
    windows = cut_windows(rows, np.ones(60, bool), made_encoding(plain), num_steps=60)
    before = observed_answers(windows, plain)
    of_service = tuple(np.where(np.arange(len(plain.services)) == 1, 5.0, 0.0).tolist())
    limit_s = run_limits_s(Timeouts(of_service), windows.request.service.ravel(), np.full(60, np.nan))
    assert limit_s is not None
    limited = windows.request._replace(run_limit_s=limit_s.reshape(windows.request.service.shape))
    after = observed_answers(windows._replace(request=limited), plain)
    cut = np.asarray(before.failed & before.started) & (windows.request.service == 1)
    assert cut.any()
    assert not after.failed[cut].any()
    assert not after.finished[cut].any()
    np.testing.assert_allclose(after.run_s[cut], 5.0)
    assert np.array_equal(after.failed[~cut], before.failed[~cut])


def test_drawn_runs_end_at_the_limit_and_fail() -> None:
    cluster, no = made_cluster(), jnp.zeros(3, bool)
    drawn = DrawnAnswers(~no, no, no, jnp.zeros(3), jnp.array([4.0, 7.0, 7.0]))
    request = made_rows(np.random.default_rng(0), cluster, 3).request
    found = cut_off(cluster, request._replace(run_limit_s=jnp.array([5.0, 5.0, jnp.inf])), drawn)
    assert found.run_s.tolist() == [4.0, 5.0, 7.0]
    assert found.failed.tolist() == [False, True, False]
    assert cut_off(cluster, request, drawn) is drawn


def test_runs_are_cut_off_whose_limit_is_beyond_the_longest_that_ended() -> None:
    cluster = made_cluster()
    model, pending = AnswerModel(None, 1.0, 20.0, 0.0), SimpleNamespace(availability_s=jnp.zeros(3))
    limit_s = jnp.array([600.0, 5.0, jnp.inf])
    sure, never = jnp.full(3, 30.0), jnp.full(3, -30.0)
    long = Mixture(jnp.full((1, 3), 0.0), jnp.full((1, 3), 40.0), jnp.full((1, 3), -3.0))
    answer = AnswerParameters(sure, never, never, sure, long, long)
    uniforms = jnp.full((NUM_UNIFORMS, 3), 0.5)
    drawn = sample_answer(answer, uniforms, 7.0, model.limits_s(pending, limit_s))  # type: ignore[arg-type]
    request = made_rows(np.random.default_rng(0), cluster, 3).request._replace(run_limit_s=limit_s)
    found = cut_off(cluster, request, drawn)
    np.testing.assert_allclose(found.run_s, [600.0, 5.0, 20.0], rtol=1e-5)
    assert found.failed.tolist() == [True, True, False]


def limited_system(**others: object):
    """A system in which runs are cut off as requested, some services sooner."""
    encoding, windows = made_system()
    timeouts = Timeouts((0.0,) * (len(encoding.cluster.services) - 1) + (5.0,), True, 3.0, -0.2)
    encoding = replace(encoding, cluster=replace(encoding.cluster, timeouts=timeouts, **others))
    service, asked_s = np.asarray(windows.request.service), np.asarray(windows.request.expected_run_s)
    limit_s = run_limits_s(timeouts, service.ravel(), asked_s.ravel())
    assert limit_s is not None
    return encoding, windows._replace(
        request=windows.request._replace(run_limit_s=limit_s.reshape(service.shape))
    )


@pytest.mark.slow
def test_whole_episodes_are_seen_and_decided_as_in_training(tmp_path) -> None:
    needs_setting(tmp_path, RULE, *limited_system(), timeouts=None)


def test_an_encoding_keeps_them_and_contracts_say_so(tmp_path) -> None:
    encoding, _ = limited_system(cold=None)
    cluster, plain = encoding.cluster, replace(encoding.cluster, timeouts=None)
    assert Encoding.from_json(encoding.to_json()).cluster.timeouts == cluster.timeouts
    assert "timeouts" not in replace(encoding, cluster=plain).to_json()
    told = dependences_of(cluster)
    assert any("at the run time that was requested" in each for each in told)
    assert any(f"{plain.services[-1]} after 5 s" in each for each in told)
    meanings = {one.name: one.description for one in placement_contract(encoding, RULE).choice_features}
    assert meanings["acceptance"].endswith("the run ends before it is cut off")
    setting = setting_of(encoding)
    judge = replace(encoding, cluster=replace(plain, hazard=(0.5,) * plain.num_nodes))
    assert encoding_of(parse_setting(setting), judge).cluster.timeouts == cluster.timeouts
    assert encoding_of(parse_setting(setting), judge).cluster.hazard == ()
    assert encoding_of(parse_setting(setting_of(judge)), encoding).cluster.hazard == judge.cluster.hazard
    for wrong in ({"of_service": [1.0]}, {"slope": -1.0}, {"offset": float("inf")}):
        with pytest.raises(ProductError, match="limits of runs"):
            parse_setting(setting | {"timeouts": setting["timeouts"] | wrong})
    made_policy(tmp_path / "bundle", encoding, RULE)
    policy = load(tmp_path / "bundle")
    books = policy.ledger([{"name": name} for name in plain.node_names], 0.0)
    for service, limit_s in ((plain.services[1], 100.0), (plain.services[-1], 5.0)):
        asked = Request(cpu_cores=0.5, site="site-0", service=service, requested_run_s=100.0)
        seen = books.explain(asked, 1.0).features
        for name in plain.node_names:
            usual_s = encoding.problem.time_unit_s * np.expm1(seen[name]["usual_run"])
            accepted = seen[name]["acceptance"] / cluster.timeouts.chance(limit_s, usual_s)
            assert np.min(np.abs(accepted - policy.setting.acceptance_of_scenario[0])) < 1e-3
