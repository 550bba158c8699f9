"""What commands tell of a log and its twin: what is not logged, which days were learned from, why nothing is shown."""

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.certify.certificate import certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.page import reasons_in_words
from evaluation.commands.cli import main
from evaluation.problems.autoscaling.forecast_lines import ABOUT, forecast_lines
from evaluation.problems.autoscaling.kit import trained
from evaluation.problems.autoscaling.notifying import logged_reward
from evaluation.problems.autoscaling.reporting import contenders_of
from evaluation.simulator.applications.load import read_series
from logs_schema.check import check_archive
from logs_schema.errors import ConfigError, FormatError
from logs_schema.product import writing
from offline_rl.autoscaling.config import TEACHER_REWARDS, ScaleConfig
from offline_rl.recipes import scaling_training
from offline_rl.recipes.scaling_task import ScalingTask, setting_of
from offline_rl.recipes.scaling_training import reachable_s
from tests.autoscaling.test_gateway_forecasts import arm
from tests.autoscaling.test_scaling_log import archive, row
from tests.autoscaling.test_twin import CALLS, CONFIG, FLOOR_S, LIMITS, LOG
from twin.autoscaling.fitting import LawsConfig, coverage_of, fit_laws
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import Earned, cost_under_slo, paper_reward
from twin.autoscaling.types import Grants
from twin.autoscaling.workload import fit_load

A_DAY = 2880
NOT_LOGGED = {"cpu_cores_used": None, "request_rate_per_s": None, "response_s": None}


def rows_on(*days):
    return [
        row(A_DAY * day + at, name, **({} if name == "gateway" else NOT_LOGGED))
        for day in days
        for at in range(5)
        for name in ("a", "b", "gateway")
    ]


@pytest.mark.parametrize(
    ("days", "words", "following"),
    [
        ((0, 1, 2), "2024-01-01 to 2024-01-02 (2 days); 2024-01-03 kept to hold it against", "log"),
        ((0,), "2024-01-01; no later day is left", "OTHER_ARCHIVE"),
    ],
)
def test_a_fit_says_which_days_it_learned_from_and_what_to_hold_it_against(
    tmp_path, capsys, days, words, following
):
    log, twin = archive(tmp_path / "log", rows_on(*days)), tmp_path / "twin"
    assert main(["fit", str(log.path), "--out", str(twin), "--no-progress"]) == 0
    told = capsys.readouterr().out
    assert f"learned from {words}" in told
    assert told.rstrip().endswith(following)
    if len(days) > 1:
        assert "[days] last_day = 2024-01-03" in told
        (tmp_path / "all.toml").write_text("[days]\nlast_day = 2024-01-03\n")
        every = ["fit", str(log.path), "--config", str(tmp_path / "all.toml"), "--out", str(tmp_path / "all")]
        assert main([*every, "--no-progress"]) == 0
        assert "2 deployments learned from 15 intervals" in capsys.readouterr().out


def test_a_check_says_which_metrics_laws_lack(tmp_path):
    rows = rows_on(0)
    warnings = check_archive(archive(tmp_path / "bare", rows).path).warnings
    assert any(
        "not logged: cpu_cores_used of any deployment; request_rate_per_s of any" in one for one in warnings
    )
    tails = [
        row(at, name, response_s=None, response_p95_s=0.3) for at in range(5) for name in ("a", "gateway")
    ]
    assert not check_archive(archive(tmp_path / "whole", tails).path).warnings  # as a fit takes it
    lone = [row(0, "a"), row(0, "b", cpu_cores_used=None), row(0, "gateway")]
    (warning,) = check_archive(archive(tmp_path / "lone", lone).path).warnings
    assert warning.startswith("not logged: cpu_cores_used of b. ")
    edge = row(0, "ingress", cpu_cores=None, num_replicas=None, cpu_cores_used=None)
    lacking, hint = check_archive(
        archive(tmp_path / "edge", [row(0, "a"), edge, row(0, "gateway")]).path
    ).warnings
    assert "num_replicas of ingress" in lacking
    assert 'gateway = "ingress" in the mapping' in hint
    (warning,) = check_archive(archive(tmp_path / "blind", [row(0, "a")]).path).warnings
    assert "no rows of 'gateway'" in warning


@pytest.mark.slow
def test_a_certificate_says_in_the_terminal_why_it_cannot_tell():
    learned, day = arm(0, (5, 6), rows=200), dt.date(2024, 1, 1)  # replicas never changed
    config = CertifyConfig()
    lines, notes = forecast_lines(learned, arm(1, (2, 4), rows=100), config)
    found = certificate_of(
        lines, ABOUT, {}, config, twin="", archive="", train_days=[day], days=[day], notes=notes
    )
    told = reasons_in_words(found)
    assert told[0].startswith("cannot tell in 2 lines: all intervals are declined")
    assert any("100.0% of the intervals are declined" in one for one in told)


def test_a_table_of_several_rates_is_no_series(tmp_path):
    """Its last column used to be taken without a word: the rates of one service for those of all."""
    (tmp_path / "rates.csv").write_text("time,cart,search\n2024-01-01 00:00:00,3,4\n0,1.5,2,7\n")
    with pytest.raises(FormatError, match="a line holds 4 numbers") as refused:
        read_series(tmp_path / "rates.csv")
    assert "row 3" in str(refused.value)
    (tmp_path / "rates.csv").write_text("time,rate\n2024-01-01 00:00:00,3\n1;30;\n")
    assert read_series(tmp_path / "rates.csv").tolist() == [3.0, 30.0]
    (tmp_path / "rates.gz").write_bytes(b"\x1f\x8b\x08\n\x00\xff")
    with pytest.raises(FormatError, match="unpack the file"):
        read_series(tmp_path / "rates.gz")


@pytest.mark.parametrize(
    ("gain", "least", "told_of_it"),
    [
        (0.9, 0.5, ""),
        (0.9, 0.2, "does not show"),
        (0.9, -0.1, "does not show"),
        (-0.5, -1.2, "does not show"),
        (-0.5, -0.7, "keep what runs"),
    ],
)
def test_a_training_holds_what_it_hands_over_against_the_logs_own_grants(gain, least, told_of_it):
    figures = {"reward": -4.0, "cpu_cores": 1.0, "mean_response_s": 0.1}
    facts = {
        "objective_s": 0.5,
        "objective_is_given": True,
        "tried": {"hpa_sized": figures},
        "logged_reward": -5.0,
        "off_by": 0.3,
        "recommended": "hpa_sized",
        "best_learned": "",
        "over_log": {"hpa_sized": {"gain": gain, "least": least}},
    }
    told = trained(facts)
    said = f"reward -5.00, as logged; hpa_sized gains {gain:.2f} over it under the load of the log, {least:.2f} at"
    assert any(said in line for line in told)
    remarks = [line for line in told if "does not show" in line or "keep what runs" in line]
    assert [told_of_it in line for line in remarks] == [True] * bool(told_of_it)


def test_a_training_tells_what_its_teacher_was_trained_for_where_that_is_not_what_all_are_judged_by():
    facts = {
        "objective_s": 0.5,
        "objective_is_given": True,
        "recommended": "hpa_sized",
        "best_learned": "",
        "tried": {"hpa_sized": {"reward": -4.0, "cpu_cores": 1.0, "mean_response_s": 0.1}},
    }
    usual = trained(facts)
    assert trained(facts | {"teacher_reward": "cost_under_slo"}) == usual
    (told,) = set(trained(facts | {"teacher_reward": "drpc_quotient"})) - set(usual)
    assert told.startswith("teacher and its students were trained for drpc_quotient; ")


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("cost_under_slo", cost_under_slo()),
        ("drpc_quotient", paper_reward()),
        ("drpc_product", paper_reward(quotient=False)),
    ],
)
def test_the_teacher_learns_from_the_reward_that_is_asked_for(monkeypatch, name, reward):
    """The environment that TD3 gets is worth what the reward says of the same grants and outcome."""
    taught = []

    def caught(_key, system, *_):
        taught.append(system.problem)
        raise StopIteration

    monkeypatch.setattr(scaling_training, "train_teacher", caught)
    laws, task = fit_laws(LOG, LawsConfig(members=1, updates=1)), ScalingTask(CONFIG, LIMITS)
    twin = ApplicationTwin(LOG.deployments, LOG.interval_s, laws, fit_load(LOG), coverage_of(LOG, laws))
    with pytest.raises(StopIteration):
        scaling_training._trained(twin, LOG, task, ScaleConfig(teacher_reward=name), None, 0, print, None)
    grants = Grants(*(jnp.full(2, one) for one in (1.0, 0.5, 2.0)))
    outcome = Earned(*(jnp.asarray([one, 2.0 * one]) for one in (0.1, 0.2, 0.1, 0.4, 0.1, 0.7, 0.01)))
    expected = reward(CONFIG, LIMITS, grants, outcome)
    np.testing.assert_array_equal(taught[0].reward(grants, outcome), expected)
    others = {
        one: make()(CONFIG, LIMITS, grants, outcome) for one, make in TEACHER_REWARDS.items() if one != name
    }
    assert not any(np.allclose(one, expected) for one in others.values())
    with pytest.raises(ConfigError, match="teacher_reward = 'drpc'"):
        ScaleConfig(teacher_reward="drpc")


def test_what_the_log_earned_is_the_price_of_its_cores_and_of_its_violations():
    task = ScalingTask(CONFIG, LIMITS)
    within, beyond = (
        replace(LOG, gateway=LOG.gateway | {"response_p95_s": np.full(len(LOG.time_s), time_s)})
        for time_s in (0.5 * CONFIG.slo_s, 4.0 * CONFIG.slo_s)
    )
    kept, missed = (logged_reward(task, log) for log in (within, beyond))
    cores = np.mean(np.sum(LOG.columns["num_replicas"] * LOG.columns["cpu_cores"], axis=1))
    assert kept < -0.5 * cores
    assert missed < kept - 1.0
    unknown = replace(
        LOG, columns=LOG.columns | {"num_replicas": np.full_like(LOG.columns["num_replicas"], np.nan)}
    )
    assert logged_reward(task, unknown) is None


def test_a_violation_costs_more_in_a_larger_application():
    """Else an objective is worth nothing where an application takes hundreds of cores."""
    twin = SimpleNamespace(
        interval_s=LOG.interval_s,
        coverage=SimpleNamespace(least_cores=[0.25] * 2, most_cores=[2.0] * 2, most_replicas=np.ones(2)),
    )
    grants = ("cpu_cores", "memory_gib")  # of replicas twice as large
    larger = replace(LOG, columns=LOG.columns | {name: 2.0 * LOG.columns[name] for name in grants})
    prices = [setting_of(ScaleConfig(), twin, log).scaling.violation_cores for log in (LOG, larger)]
    cores = np.nanmean(LOG.columns["num_replicas"] * LOG.columns["cpu_cores"], axis=0).sum()
    assert prices[0] > ScaleConfig().violation_weight * cores
    assert prices[1] == pytest.approx(2.0 * prices[0])


@pytest.mark.parametrize(
    ("objective_s", "kept", "words"),
    [
        (0.02, 0.0, "nobody can keep this objective: with all that the bounds allow"),
        (0.1, 0.03, "hpa_sized keeps the objective in 3 % of the intervals"),
        (0.5, 0.97, ""),
    ],
)
def test_an_objective_that_is_not_kept_is_told_with_what_could_be(objective_s, kept, words):
    figures = {"cpu_cores": 1.0, "mean_response_s": 0.1, "reward": -4.0, "objective_kept": kept}
    facts = {
        "objective_s": objective_s,
        "objective_is_given": True,
        "tried": {"hpa_sized": figures},
        "reachable_s": 0.0901,
        "recommended": "hpa_sized",
        "best_learned": "",
    }
    told = trained(facts)
    found = [line for line in told if words and line.startswith(words)]
    assert len(found) == bool(words)
    assert not words or "0.0901" in found[0]
    assert len(told) == 3 + bool(words)


@pytest.mark.slow
def test_the_best_reachable_is_what_all_that_the_bounds_allow_keeps():
    """Alone at its station a request takes the floor of each call over the cores, and its tail is no shorter."""
    laws = fit_laws(LOG, LawsConfig(members=2))
    twin = ApplicationTwin(LOG.deployments, LOG.interval_s, laws, fit_load(LOG), coverage_of(LOG, laws))
    config = ScaleConfig(slo_s=0.2, trial_episodes=2, trial_steps=40)
    found = [
        reachable_s(twin, LOG, ScalingTask(CONFIG, limits), config)
        for limits in (LIMITS, LIMITS._replace(max_replicas=4.0 * LIMITS.max_replicas))
    ]
    alone_s = float(FLOOR_S / np.asarray(LIMITS.max_cpu_cores) @ CALLS)
    assert alone_s < found[1] <= found[0] < 20.0 * alone_s


def test_what_older_code_trained_is_still_compared(tmp_path):
    """Its planner named what a violation costs, which stands beside the objective now."""
    chosen = {"margin": 0.7, "quantile": 0.9, "keep": 6.0, "horizon": 3.0, "weight": 10.0}
    with writing(tmp_path / "policy", "policy", extra={"chosen": {"lookahead": chosen}}):
        pass
    laws = fit_laws(LOG, LawsConfig(members=1, updates=1))
    twin = ApplicationTwin(LOG.deployments, LOG.interval_s, laws, fit_load(LOG), coverage_of(LOG, laws))
    found = contenders_of(tmp_path / "policy", ScalingTask(CONFIG, LIMITS), twin, LOG)
    assert "lookahead" in [one.facts.name for one in found]
