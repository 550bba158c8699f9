"""Forecasts of what users see from load and grants: a law that is known, intervals that cover, and what is declined."""

import json

import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.problems.autoscaling.forecasts import cut_out, forecast_rows, quantities_of, scored
from evaluation.reproduction.benches import forecasts
from logs_schema.errors import ConfigError, ProductError
from logs_schema.progress import SilentProgress
from tests.autoscaling.test_scaling_log import archive, row
from tests.autoscaling.test_twin import made_log
from twin.autoscaling.gateway_forecasts.forecaster import LAW, fit_forecaster
from twin.autoscaling.gateway_forecasts.inputs import CORES, RATE, RATES, inputs_of, load_source_of
from twin.autoscaling.persistence import has_laws, load_application_twin, load_log
from twin.autoscaling.scaling_log import DEPLOYMENT_COLUMNS, GATEWAY_COLUMNS, ScalingLog, read_scaling_log

QUANTITY = "response_p95_s"


def arm(seed, replicas, rows=500, noise=0.1, closed=False):
    """A log of two deployments whose 95 % quantile is .02 s (1 + (rate / 10 replicas of b)^2); of a closed system the
    rate falls as it rises."""
    random = np.random.default_rng(seed)
    rate = 60.0 * np.exp(0.5 * np.sin(np.arange(rows) / 37.0) + random.normal(0.0, 0.2, rows))
    granted = np.repeat(random.integers(*replicas, (rows // 10, 2)), 10, axis=0).astype(float)
    p95_s = 0.02 * (1.0 + (rate / (10.0 * granted[:, 1])) ** 2) * np.exp(random.normal(0.0, noise, rows))
    unknown = np.full((rows, 2), np.nan)
    columns = {name: unknown.copy() for name in DEPLOYMENT_COLUMNS}
    columns |= {"cpu_cores": np.ones((rows, 2)), "num_replicas": granted, "ready_replicas": granted}
    gateway = {name: unknown[:, 0].copy() for name in GATEWAY_COLUMNS}
    gateway |= {"request_rate_per_s": 60.0 * (p95_s / 0.05) ** -0.1 if closed else rate, QUANTITY: p95_s}
    return ScalingLog(("a", "b"), 30.0, np.arange(rows) * 30.0, columns, gateway)


@pytest.fixture(scope="module")
def forecaster():
    return fit_forecaster(arm(0, (2, 8)), QUANTITY)


@pytest.mark.slow
def test_another_arm_of_a_known_law_is_forecast_within_intervals(forecaster):
    score = scored(forecaster, forecast_rows(forecaster, arm(0, (2, 8)), arm(1, (3, 7))))
    assert forecaster.chosen in ("monotone trees", "trees", "trees on log-linear")
    assert score.answered > 0.9
    assert score.error < 0.13  # the noise alone gives .08
    assert score.error < min(score.errors["nearest neighbour"], score.errors["log-linear"])
    assert 0.9 <= score.covered <= 0.99
    assert score.rank > 0.9
    assert score.factor < 2.5


def followed(seed, per_replica, rows=1500):
    """A log whose replicas follow its load; answers take longer by a power of the load of a replica, and in steps."""
    found = arm(seed, (2, 8), rows)
    random, rate = np.random.default_rng([seed, 1]), found.gateway["request_rate_per_s"]
    granted = np.ceil(rate[:, None] / per_replica + random.integers(0, 3, (rows, 1)))
    found.columns.update(
        num_replicas=np.repeat(granted, 2, axis=1), ready_replicas=np.repeat(granted, 2, axis=1)
    )
    load = rate / granted[:, 0]
    found.gateway[QUANTITY] = (
        0.01 * load**1.2 * (1.0 + 0.3 * (rate > 60.0)) * np.exp(random.normal(0.0, 0.05, rows))
    )
    return found


@pytest.mark.slow
def test_of_an_autoscaler_that_grants_more_trees_correct_a_line_that_goes_on():
    log, other = followed(0, 12.0), followed(1, 9.0)
    forecaster = fit_forecaster(log, QUANTITY)
    assert forecaster.chosen == "trees on log-linear"
    found = forecast_rows(forecaster, log, other)
    score = scored(forecaster, found)
    assert score.answered > 0.2
    assert score.error < 0.8 * min(score.errors["nearest neighbour"], score.errors["log-linear"])


@pytest.mark.slow
def test_what_the_log_has_never_seen_is_declined(forecaster):
    assert forecaster.forecast(arm(1, (30, 40))).far.all()  # more replicas than ever
    still = fit_forecaster(arm(0, (5, 6), rows=200), QUANTITY)  # replicas never changed
    assert still.forecast(arm(1, (2, 4))).declined.all()
    assert still.forecast(arm(1, (5, 6))).declined.mean() < 0.1
    unknown = arm(1, (3, 7))
    unknown.gateway["request_rate_per_s"][5] = np.nan
    found = forecaster.forecast(unknown)
    assert found.declined[5]
    assert np.isnan(found.middle[5])


@pytest.mark.slow
def test_a_load_that_falls_because_answers_are_slow_gets_no_monotone_law():
    forecaster = fit_forecaster(arm(0, (5, 6), rows=300, closed=True), QUANTITY)
    assert forecaster.errors["monotone trees"] > 2.0 * forecaster.errors["trees"]
    assert forecaster.chosen != "monotone trees"


@pytest.mark.slow
def test_noisier_logs_have_wider_intervals(forecaster):
    loud, other = fit_forecaster(arm(0, (2, 8), noise=0.3), QUANTITY), arm(1, (3, 7))
    factors = [
        np.median(found.high / found.low) for found in (one.forecast(other) for one in (forecaster, loud))
    ]
    assert factors[1] > 1.5 * factors[0]


def test_the_load_is_the_best_that_a_log_tells():
    log = arm(0, (2, 8))
    assert load_source_of(log) == RATE
    nothing = np.full(500, np.nan)
    log.gateway["request_rate_per_s"][:] = nothing
    with pytest.raises(ConfigError, match="has no load"):
        load_source_of(log)
    log.columns["cpu_cores_used"][:] = 0.5
    assert load_source_of(log) == CORES
    inputs = inputs_of(log, CORES)
    np.testing.assert_allclose(inputs.load, np.log(0.5 * log.columns["num_replicas"]))
    assert quantities_of(log, log) == [QUANTITY]  # not the cores, which are the load
    log.columns["request_rate_per_s"][:] = 4.0
    assert load_source_of(log) == RATES
    with pytest.raises(ConfigError, match="0 intervals have load, grants and response_p99_s"):
        fit_forecaster(log, "response_p99_s")


def test_a_log_that_never_tells_replicas_is_refused_by_that_name():
    log = arm(0, (2, 8), rows=50)
    log.columns["num_replicas"][:] = np.nan
    with pytest.raises(ConfigError, match="how many replicas"):
        load_source_of(log)


def test_persistence_sees_nothing_of_the_first_interval(forecaster):
    other = arm(1, (3, 7), rows=60)
    other.gateway[QUANTITY][0] = 7.0
    found = forecast_rows(forecaster, arm(0, (2, 8)), other)
    assert found.rows[0] == 0
    assert found.simple["persistence"][0] == np.median(found.logged)
    np.testing.assert_array_equal(found.simple["persistence"][1:], found.logged[:-1])


def test_inputs_hold_changes_but_not_over_gaps():
    log = arm(0, (2, 8), rows=40)
    log.gateway["request_rate_per_s"][:3] = [1.0, np.e, np.nan]
    changes = inputs_of(log, RATE).changes
    np.testing.assert_allclose(changes[:4, 0], [0.0, 1.0, 0.0, 0.0], atol=1e-9)


@pytest.mark.slow
def test_the_laws_of_stations_stand_among_the_candidates():
    log = cut_out(made_log(1), slice(0, 200))
    truth = log.gateway[QUANTITY].copy()

    def replay(learned_log, learned, other):
        assert learned_log is log
        assert not learned.all() or other is not log
        return truth if other is log else np.full(len(other.time_s), 7.0)

    forecaster = fit_forecaster(log, QUANTITY, replay)
    assert forecaster.chosen == LAW
    assert forecaster.errors[LAW] == pytest.approx(0.0, abs=1e-9)
    assert forecaster.forecast(made_log(1, seed=1)).middle == pytest.approx(7.0)


def rows_of(log):
    found = []
    for at in range(len(log.time_s)):
        for one, name in enumerate(log.deployments):
            found.append(
                {
                    "time": row(at, name)["time"],
                    "interval_s": 30.0,
                    "deployment": name,
                    "cpu_cores": 1.0,
                    "num_replicas": int(log.columns["num_replicas"][at, one]),
                }
            )
        metrics = {name: float(log.gateway[name][at]) for name in ("request_rate_per_s", QUANTITY)}
        found.append(row(at, "gateway") | {"response_s": None, "num_failures": None} | metrics)
    return found


def test_a_twin_that_only_forecasts_counts_what_is_logged_and_is_never_said_to_want_a_certificate(
    tmp_path, capsys
):
    rows = rows_of(arm(0, (2, 8), rows=120))
    archive(tmp_path / "log", rows[: 3 * 40] + rows[3 * 60 :])  # a gap of 20 intervals
    twin = str(tmp_path / "twin")
    assert main(["fit", str(tmp_path / "log"), "--out", twin, "--json", "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out)["num_intervals"] == 100
    assert main(["train", twin, "--out", str(tmp_path / "policy"), "--no-progress"]) == 2
    assert "no laws of deployments to train in" in capsys.readouterr().err


@pytest.mark.slow
def test_a_log_without_metrics_of_deployments_is_fitted_and_certified_on_another_arm(tmp_path, capsys):
    archive(tmp_path / "one", rows_of(arm(0, (2, 8), rows=400)))
    archive(tmp_path / "two", rows_of(arm(1, (3, 7), rows=400)))  # the same day under another autoscaler
    twin = str(tmp_path / "twin")
    assert main(["fit", str(tmp_path / "one"), "--out", twin, "--no-progress"]) == 0
    assert "nothing can be trained in it" in capsys.readouterr().out
    assert not has_laws(tmp_path / "twin")
    with pytest.raises(ProductError, match="no laws of deployments"):
        load_application_twin(tmp_path / "twin")
    assert load_log(tmp_path / "twin").deployments == ("a", "b")
    main(["certify", twin, str(tmp_path / "two"), "--json", "--no-progress"])
    found = json.loads(capsys.readouterr().out)
    lines = {line["name"]: line for line in found["lines"]}
    assert lines["95 % quantile of the response: intervals that miss"]["value"]["value"] < 0.12
    assert lines["95 % quantile of the response: error over the simple models'"]["value"]["value"] <= 0.0
    assert any("are declined" in note for note in found["notes"])
    assert main(["certify", twin, str(tmp_path / "one"), "--no-progress"]) != 0
    assert "no day after the training days" in capsys.readouterr().err
    assert main(["bench", "forecasts", str(tmp_path / "one"), str(tmp_path / "two"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["rows"]
    assert [(one["learned_from"], one["forecast"]) for one in scores] == [("one", "two"), ("two", "one")]
    assert all(one["error"] < one["errors"]["nearest neighbour"] for one in scores)


def test_logs_of_one_name_in_two_folders_are_two_logs(tmp_path, monkeypatch):
    arms = [tmp_path / name / "archive" for name in ("hpa", "keda")]
    for place, path in enumerate(arms):
        path.parent.mkdir()
        archive(path, rows_of(arm(place, (2, 8), rows=40)))
    monkeypatch.setattr(forecasts, "forecast_scores", lambda log, other: [None])
    found = forecasts.bench_forecasts(arms, SilentProgress())
    one, two = "hpa/archive", "keda/archive"
    assert [(row.learned_from, row.forecast) for row in found] == [(one, two), (two, one)]
    assert forecasts.bench_forecasts(arms[:1], SilentProgress())[0].forecast == "archive, later half"
    with pytest.raises(ConfigError, match="the same log twice"):
        forecasts.bench_forecasts([arms[0], arms[0]], SilentProgress())


def test_a_mean_that_is_never_logged_is_that_of_an_exponential_time(tmp_path):
    rows = [row(at, "a", response_s=None, response_p95_s=0.29957) for at in range(4)]
    log = read_scaling_log(archive(tmp_path / "log", rows + [row(at, "gateway") for at in range(4)]))
    np.testing.assert_allclose(log.columns["response_s"], 0.1)
    np.testing.assert_allclose(log.gateway["response_s"], 0.05)  # logged: not touched
    assert len(log.assumed) == 1
    assert "a third of the 95 % quantile" in log.assumed[0]


@pytest.mark.slow
def test_laws_that_cannot_be_fitted_are_no_candidate():
    def replay(*_):
        raise ConfigError("too little")

    assert LAW not in fit_forecaster(arm(0, (2, 8), rows=200), QUANTITY, replay).errors
