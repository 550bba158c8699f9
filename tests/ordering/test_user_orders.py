"""The user's own policies beside the rules of a queue: functions, rules and bundles, in replay and generated weeks."""

import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import UnitValues
from evaluation.commands import cli
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.products import load_comparison
from evaluation.problems.configuration import OrderConfig, RunConfig, WeeksConfig
from evaluation.problems.ordering.comparing import REPLAY, TWIN
from evaluation.problems.ordering.exporting import QueueBundle, export_rule
from evaluation.problems.ordering.fixed_orders import fixed_order
from evaluation.problems.ordering.judging import compare_queue
from evaluation.problems.ordering.user_orders import user_orders
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from offline_rl.ordering.programs import OrderTrainingConfig
from tests.ordering.making import QUICK
from twin.ordering.features import JOB_FEATURES
from twin.ordering.persistence import load_queue_twin
from twin.ordering.rules import SAF, Rule
from twin.ordering.types import Pool

DAYS = {"first_day": "2001-09-10", "last_day": "2001-10-07", "num_days": 28}
WAITED = [one.name for one in JOB_FEATURES].index("waited")


def longest_wait(_key, observation, legal):
    return jnp.argmax(jnp.where(legal, observation.job[WAITED], -jnp.inf), axis=0).astype(jnp.int32)


def in_numpy(_key, observation, legal):
    return np.argmax(np.where(legal, np.asarray(observation.job)[WAITED], -np.inf), axis=0).astype(np.int32)


def by_starts(play, days):
    """Mean wait by day of arrival, from the starts alone."""
    (week,), (start_s,) = days.history(), play(days.history())
    day = week.jobs.arrival_s[week.counted] // 86_400.0
    wait_s = (start_s - week.jobs.arrival_s)[week.counted]
    each = [wait_s[day == one] for one in np.unique(day)]
    return UnitValues(
        {"mean_wait": np.array([one.mean() for one in each])}, np.array([len(one) for one in each])
    )


def out_of_order(_play, days):
    raise RuntimeError(f"nothing known of {days.days[0]}")


def compared(folder, policies, judges=None):
    weeks = WeeksConfig(shifts="0d", num_test_days=2, num_drain_days=1)
    order = OrderConfig(weeks=weeks, num_twin_weeks=1, intervals=IntervalConfig(num_replicates=200))
    archive, twin = Archive(folder / "archive"), load_queue_twin(folder / "twin")
    return compare_queue(
        archive, twin, RunConfig(order=order), SilentProgress(), users=policies, judges=judges
    )[0]


@pytest.fixture(scope="module")
def found(queue_made, tmp_path_factory):
    folder, _ = queue_made
    bundle = tmp_path_factory.mktemp("user") / "bundle"
    pool = load_queue_twin(folder / "twin").pool
    export_rule(fixed_order("sjf+easy"), bundle, QueueBundle(pool, OrderTrainingConfig(), DAYS))
    policies = {
        "rule": Rule("mine", "smallest first", SAF.score),
        "bundle": bundle,
        "wrong": lambda key, seen, legal: seen.missing,
        "illegal": lambda key, seen, legal: jnp.full(legal.shape[1:], legal.shape[0] - 1),
        "raises": Rule("mine", "raises", lambda waiting, now_s: waiting.missing, ages=True),
        "short": Rule("mine", "scores one job", lambda waiting, now_s: waiting.processors[:1]),
        "none": Rule("mine", "scores no job", lambda waiting, now_s: waiting.processors * np.nan),
    }
    return compared(folder, policies, {"starts": by_starts, "broken": out_of_order})


@pytest.mark.slow
def test_a_judge_of_ones_own_plays_every_order(found):
    assert [one.name for one in found.judges][-1] == "starts"
    for name in ("fcfs+easy", "rule", "bundle", "ladder"):
        mine, exact = (found.cell(judge, 0, name, "mean_wait").value for judge in ("starts", REPLAY))
        assert mine == pytest.approx(exact, rel=1e-6)
    assert "judge 'broken' raised RuntimeError: nothing known of 20" in found.refused["judge broken"]


def same(found, one, other):
    values = [
        found.cell(judge, 0, name, "bounded_slowdown").value
        for judge in (REPLAY, TWIN)
        for name in (one, other)
    ]
    return values[0] == pytest.approx(values[1], rel=1e-6) and values[2] == pytest.approx(values[3], rel=1e-6)


@pytest.mark.slow
def test_own_policies_are_judged_in_replay_and_in_the_twin(found):
    kinds = {one.name: one.kind for one in found.policies}
    assert {kinds[name] for name in ("rule", "bundle")} == {"user"}
    assert same(found, "rule", "saf+easy")
    assert same(found, "bundle", "sjf+easy")


@pytest.mark.slow
def test_a_function_of_numpy_is_played_as_one_of_jax(queue_made):
    assert same(compared(queue_made[0], {"waited": longest_wait, "host": in_numpy}), "waited", "host")


@pytest.mark.slow
def test_policies_that_fail_are_left_out_by_name(found):
    assert set(found.refused) == {"wrong", "illegal", "raises", "short", "none", "judge broken"}
    assert "raised AttributeError" in found.refused["wrong"]
    assert "observation.job" in found.refused["wrong"]
    assert "place without a job" in found.refused["illegal"]
    assert "raised AttributeError" in found.refused["raises"]
    assert "scores float64[1] where a number for each of" in found.refused["short"]
    assert "no score (NaN)" in found.refused["none"]


@pytest.mark.slow
def test_from_the_command_line(queue_made, tmp_path, monkeypatch, capsys):
    folder, _ = queue_made
    (tmp_path / "orders_of_mine.py").write_text(
        "from twin.ordering.rules import SAF as BEST\nfrom tests.ordering.test_user_orders import by_starts\n"
    )
    (tmp_path / "quick.toml").write_text(QUICK)
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        folder / "archive",
        folder / "twin",
        "--config",
        "quick.toml",
        "--shifts",
        "0d",
        "--out",
        "out",
    ]
    own = ("--policy", "best=orders_of_mine:BEST", "--judge", "starts=orders_of_mine:by_starts")
    assert cli.main([*map(str, words), *own, "--no-progress"]) == 0
    assert "judge starts has no values of bounded_slowdown" in capsys.readouterr().out
    assert load_comparison(tmp_path / "out").cell("starts", 0, "best", "mean_wait") is not None
    assert load_comparison(tmp_path / "out").cell(REPLAY, 0, "best", "bounded_slowdown") is not None
    words[-1] = "other"
    assert cli.main([*map(str, words), "--policy", "fcfs=orders_of_mine:BEST", "--no-progress"]) == 2
    assert "is taken by a policy of the comparison" in capsys.readouterr().err


def test_a_bundle_of_another_pool_is_refused(tmp_path):
    bundle = QueueBundle(Pool(24.0, easy=True), OrderTrainingConfig(), DAYS)
    export_rule(fixed_order("sjf+easy"), tmp_path / "bundle", bundle)
    own = user_orders({"other": tmp_path / "bundle"}, [], Pool(16.0), OrderTrainingConfig(), ())
    assert isinstance(own.entered.refused["other"], ConfigError)
    assert "24 processors" in str(own.entered.refused["other"])
