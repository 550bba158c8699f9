"""Days that autoscalers are compared on: as many episodes as the log holds, at their hours."""

import datetime as dt
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate, IntervalConfig
from evaluation.comparison.entries import PolicyFacts
from evaluation.comparison.shifts import ShiftConfig, TestDays, plan_shifts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems import usual_refresh as usual_refresh_module
from evaluation.problems.autoscaling import comparing
from evaluation.problems.autoscaling.episodes import rows_of_episode, starts_of, sums_in_log
from evaluation.problems.autoscaling.forecasts import cut_out
from evaluation.problems.autoscaling.kit import AUTOSCALING_KIT
from evaluation.problems.configuration import RunConfig
from evaluation.problems.refresh_parts import NEW, RUNNING
from evaluation.problems.usual_refresh import usual_refresh
from evaluation.simulator.applications.presets import application
from logs_schema.errors import ArchiveError, ConfigError
from logs_schema.progress import SilentProgress
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from tests.autoscaling.test_twin import CONFIG, LIMITS, made_log
from twin.autoscaling.fitting import LawsConfig, coverage_of, fit_laws
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.workload import fit_load

DAY = made_log(1)
TASK, WORTH = ScalingTask(CONFIG, LIMITS), cost_under_slo()
MORNING = slice(960, 1680)
"""From 08:00 to 14:00."""


def roughly_fitted(log):
    laws = fit_laws(log, LawsConfig(members=1, rows=100, updates=1))
    return ApplicationTwin(log.deployments, log.interval_s, laws, fit_load(log), coverage_of(log, laws))


@pytest.mark.parametrize(("num_rows", "episodes"), [(2880, 12), (2879, 11), (720, 3), (240, 1), (239, 0)])
def test_episodes_share_no_row_and_none_ends_beyond_the_log(num_rows, episodes):
    starts, length = starts_of(np.ones(num_rows), 30.0), rows_of_episode(30.0)
    assert len(starts) == episodes
    rows = (starts[:, None] + np.arange(length)).ravel()
    assert len(np.unique(rows)) == len(rows)
    assert rows.max(initial=0) < num_rows


def test_hours_without_load_are_no_episode():
    asked = np.ones(2880)
    asked[240:600] = np.nan  # an episode, and half of the next
    np.testing.assert_array_equal(starts_of(asked, 30.0), [0, *range(480, 2880, 240)])


def test_a_log_that_begins_at_eight_is_played_at_eight(monkeypatch):
    told = {}

    def response(name):
        return lambda *given, **named: told.update({name: (given, named)})

    monkeypatch.setattr(comparing, "fit_application", roughly_fitted)
    monkeypatch.setattr(comparing, "twin_response", response("twin"))
    monkeypatch.setattr(comparing, "application_response", response("truth"))
    log = cut_out(DAY, MORNING)
    twin = comparing._twin_day(log, 0, TASK)
    facts = {"preset": "chain", "interval_s": 30.0, "seed": 0, "first_day": "2024-01-01"}
    names = [service.name for service in application("chain").services]
    truth = comparing._true_day(facts, dt.date(2024, 1, 2), 0, TASK, names, log)
    for day, place in ((twin, 3), (truth, 2)):
        day.respond(239, LIMITS)
        given, named = told[day.judge]
        np.testing.assert_array_equal(named["starts"], [960, 1200, 1440])
        rates = np.asarray(given[place]).reshape(len(given[place]), -1).sum(axis=1)
        np.testing.assert_allclose(rates[960:], DAY.gateway["request_rate_per_s"][MORNING], rtol=1e-5)
        np.testing.assert_array_equal(day.starts, [0, 240, 480])


def test_a_comparison_that_is_killed_fits_no_twin_of_a_day_again(monkeypatch, tmp_path):
    fitted, laws = [], []
    monkeypatch.setattr(comparing, "fit_application", lambda log: fitted.append(1) or roughly_fitted(log))
    monkeypatch.setattr(comparing, "twin_response", lambda known, *_, **__: laws.append(known))
    for keep in (NOTHING_KEPT, *[Unfinished(tmp_path / "units")] * 2):
        comparing._twin_day(cut_out(DAY, MORNING), 0, TASK, None, keep).respond(239, LIMITS)
    assert len(fitted) == 2  # alone, and for both that keep it
    jax.tree.map(np.testing.assert_array_equal, laws[0], laws[1])
    jax.tree.map(np.testing.assert_array_equal, laws[0], laws[2])


@pytest.mark.slow
def test_what_the_log_earned_is_counted_as_what_is_played():
    """Over the intervals that an episode counts, one over the other, with what is not known left out."""
    log = cut_out(DAY, MORNING)
    log.gateway["response_s"][[400, 700]] = log.gateway["response_p95_s"][[400, 700]] = np.nan
    log.gateway["request_rate_per_s"][400] = log.gateway["num_failures"][400] = (
        0.0  # nobody asked: the objective is kept
    )
    sums = sums_in_log(log, starts_of(log.gateway["request_rate_per_s"], 30.0), TASK, WORTH)
    rows = np.concatenate([np.arange(begin + 21, begin + 240) for begin in (0, 240, 480)])
    rows = rows[rows != 700]
    assert sums["intervals"].tolist() == [219.0, 219.0, 218.0]
    held = log.columns["num_replicas"] * log.columns["cpu_cores"]
    assert sums["cores"].sum() == pytest.approx(held[rows].sum(), rel=1e-5)
    answered = log.gateway["request_rate_per_s"] * 30.0 - log.gateway["num_failures"]
    assert sums["answered"].sum() == pytest.approx(answered[rows].sum(), rel=1e-5)
    least = (held + log.columns["num_replicas"] * log.columns["memory_gib"] / 8.0)[rows].sum()
    assert sums["reward"].sum() <= -least * (1.0 - 1e-5)  # and the price of violations


@pytest.mark.slow
def test_too_few_episodes_cannot_tell(monkeypatch):
    monkeypatch.setattr(comparing, "fit_application", roughly_fitted)
    day = comparing._twin_day(cut_out(DAY, MORNING), 0, TASK)
    found = {
        name: comparing._sums(
            day, TASK, [horizontal_pod(*TASK, PodAutoscalerConfig(target=target))], cost_under_slo(), 0
        )
        for name, target in (("few", 0.6), ("many", 0.3))
    }
    assert found["few"]["intervals"].tolist() == [[239.0 - 20.0] * 3]
    cells, differences = comparing._judged(day, found, ("few",), IntervalConfig())
    assert {cell.estimate.num_units for cell in cells} == {3}
    (gap,) = (one for one in differences if one.metric == "cpu_cores")
    assert gap.estimate.value > 1.0
    assert gap.verdict is DifferenceVerdict.CANNOT_TELL
    assert "3 units are fewer than 6" in gap.estimate.reason


@pytest.mark.slow
def test_the_log_plays_its_own_grants_and_who_asks_for_no_numbers_is_left_out(monkeypatch):
    """The training days had half a core at most and three replicas, the judged day has left both."""
    monkeypatch.setattr(comparing, "fit_application", roughly_fitted)
    log = cut_out(DAY, MORNING)
    narrow = ScalingTask(
        CONFIG,
        LIMITS._replace(
            max_cpu_cores=0.5 + 0 * LIMITS.max_cpu_cores, max_replicas=3.0 + 0 * LIMITS.max_replicas
        ),
    )
    day = comparing._twin_day(log, 0, narrow)
    monkeypatch.setattr(comparing, "_days", lambda *_: ((), [day]))
    lost = Autoscaler(
        lambda _: (),
        lambda _key, memory, state: (memory, state.grants._replace(replicas=jnp.nan * state.grants.replicas)),
    )
    in_numpy = Autoscaler(
        lambda _: (),
        lambda _key, memory, state: (
            memory,
            state.grants._replace(replicas=np.asarray(state.grants.replicas)),
        ),
    )
    archive = SimpleNamespace(path=Path("log"), content_hash="", num_rows=lambda _: 0)
    found = comparing.compare_autoscalers(
        archive, [day_of(1)], [], narrow, log.deployments,
        [comparing.ComparedAutoscaler(PolicyFacts(name, "baseline", ""), [one], is_users=True)
         for name, one in (("lost", lost), ("in_numpy", in_numpy))],
        cost_under_slo(), SilentProgress(),
    )  # fmt: skip
    assert list(found.refused) == ["lost", "in_numpy"]
    assert "'lost' asked for grants that are no numbers in 717 of 717 intervals" in found.refused["lost"]
    told = r"'in_numpy' raised TracerArray[\s\S]*where: twin, shift 0d\s*allowed: .*, of operations of JAX"
    assert re.search(told, found.refused["in_numpy"])
    (cores,) = (one.estimate.value for one in found.cells if one.metric == "cpu_cores")
    granted = (log.columns["num_replicas"] * log.columns["cpu_cores"]).sum(axis=1).reshape(3, 240)
    assert cores == pytest.approx(granted[:, 21:].mean(), rel=1e-4)


def test_of_a_policy_that_fails_on_a_later_day_nothing_is_left(monkeypatch):
    days = [comparing.Day("twin", shift, np.zeros(6), None, None) for shift in (0, 1)]  # type: ignore[arg-type]
    monkeypatch.setattr(comparing, "_days", lambda *_: ((), days))

    def sums(day, _task, _autoscalers, _reward, _seed, name):
        if (name, day.shift_days) == ("mine", 1):
            raise ValueError("no such day")
        return {part: np.ones(6) for parts in comparing.PARTS.values() for part in parts}

    monkeypatch.setattr(comparing, "_sums", sums)
    archive = SimpleNamespace(path=Path("log"), content_hash="", num_rows=lambda _: 0)
    found = comparing.compare_autoscalers(
        archive, [day_of(1)], [], TASK, ("web",),
        [comparing.ComparedAutoscaler(PolicyFacts(name, "baseline", ""), [], is_users=name == "mine")
         for name in ("mine", "hpa")],
        cost_under_slo(), SilentProgress(), references=("hpa", "mine"),
    )  # fmt: skip
    assert "'mine' raised ValueError: no such day\n  where: twin, shift 1d" in found.refused["mine"]
    assert {one.policy for one in (*found.cells, *found.tallies)} == {"hpa"}
    assert not [one for one in found.differences if "mine" in (one.policy, one.reference)]


def test_an_interval_of_several_seeds_covers_training_again():
    """Of five seeds that differ, and episodes that do not, the interval is that over seeds."""
    day = comparing.Day("twin", 0, np.zeros(12), None, None)  # type: ignore[arg-type]
    config, random, hits = IntervalConfig(num_replicates=400), np.random.default_rng(0), []

    def sums(seeds: np.ndarray) -> dict[str, np.ndarray]:
        ones = np.ones((len(seeds), 12))
        return {part: ones for part in comparing.SUMS} | {"reward": ones * seeds[:, None]}

    def judged(found: dict[str, dict[str, np.ndarray]]) -> dict[str, Estimate]:
        cells, gaps = comparing._judged(day, found, ("hpa",), config)
        reward = [one for one in (*cells, *gaps) if one.metric == "reward" and one.policy == "students"]
        return {type(one).__name__: one.estimate for one in reward}

    for _ in range(60):
        seeds = random.normal(-10.0, 1.0, 5)
        found = judged({"hpa": sums(np.array([-10.0])), "students": sums(seeds)})
        assert found["Cell"].value == pytest.approx(seeds.mean())
        hits += [
            found["Cell"].low <= -10.0 <= found["Cell"].high,
            found["Difference"].low <= 0.0 <= found["Difference"].high,
        ]
    assert np.mean(hits) > 0.88
    once = {part: value[0] for part, value in sums(np.array([-9.0])).items()}  # as of the log
    alone = judged({"hpa": once, "students": sums(np.array([-9.0]))})
    assert alone["Difference"] == Estimate(0.0, 0.0, 0.0, 12)


def test_a_comparison_of_other_days_is_another() -> None:
    config = RunConfig()
    wider = replace(config, shifts=replace(config.shifts, max_width_days=3))
    plans = [AUTOSCALING_KIT.compare(one, "title", {}) for one in (config, wider)]
    assert plans[0].settings != plans[1].settings


def test_the_log_is_named_where_it_is_judged_by_what_it_says_alone(monkeypatch):
    """As where no day makes a twin, and the truth judges."""
    in_log = {part: np.ones(6) for parts in comparing.PARTS.values() for part in parts}
    days = [comparing.Day("truth", 0, np.zeros(6), None, None, in_log)]  # type: ignore[arg-type]
    monkeypatch.setattr(comparing, "_days", lambda *_: ((), days))
    archive = SimpleNamespace(path=Path("log"), content_hash="", num_rows=lambda _: 0)
    found = comparing.compare_autoscalers(
        archive, [day_of(1)], [], TASK, ("web",), [], cost_under_slo(), SilentProgress()
    )
    assert {one.policy for one in found.cells} == {"logged"} == {one.name for one in found.policies}


def test_a_day_that_is_not_whole_says_so(monkeypatch):
    first = dt.date(2024, 1, 1)
    logs = {1: cut_out(DAY, MORNING), 2: cut_out(DAY, slice(0, 100))}
    archive = SimpleNamespace(
        days=lambda _table: [first + dt.timedelta(days=one) for one in logs], facts={}, path="here"
    )
    monkeypatch.setattr(
        comparing, "read_scaling_log", lambda _archive, days, _names: logs[(days[0] - first).days]
    )
    monkeypatch.setattr(comparing, "_twin_day", lambda _log, shift, *_: shift)
    shifts = [TestDays(one, (), None) for one in (0, 1, 2)]
    facts, days = comparing._days(archive, [first], shifts, TASK, ("a", "b"), WORTH)
    assert days == [0]
    assert [one.note for one in facts] == [
        "the log holds 3 of 12 episodes of 2024-01-02",
        "the log holds no episode of 2024-01-03",
        "the log has no samples of 2024-01-04",
    ]
    assert [one.days for one in facts] == [("2024-01-02",), (), ()]
    with pytest.raises(ConfigError, match="holds no episode"):
        comparing._days(archive, [first], shifts[1:2], TASK, ("a", "b"), WORTH)


def test_a_day_that_makes_no_twin_is_noted_and_the_others_are_judged(monkeypatch):
    short = replace(DAY, gateway=DAY.gateway | {"num_failures": DAY.gateway["request_rate_per_s"] * 30.0})
    archive = SimpleNamespace(days=lambda _table: [day_of(2), day_of(3)], facts={}, path="here")
    monkeypatch.setattr(
        comparing, "read_scaling_log", lambda _archive, days, _names: short if days == [day_of(2)] else DAY
    )
    twin_day = comparing._twin_day
    monkeypatch.setattr(comparing, "fit_application", roughly_fitted)
    monkeypatch.setattr(
        comparing,
        "_twin_day",
        lambda log, shift, *rest: twin_day(log, shift, *rest) if log is short else shift,
    )
    shifts = [TestDays(one, (), None) for one in (0, 1)]
    facts, days = comparing._days(archive, [day_of(1)], shifts, TASK, ("a", "b"), WORTH)
    assert days == [1]
    assert facts[0].note.startswith("no twin of 2024-01-02: 0 intervals show how")
    assert [one.days for one in facts] == [(), ("2024-01-03",)]
    with pytest.raises(ConfigError, match="no twin of 2024-01-02"):
        comparing._days(archive, [day_of(1)], shifts[:1], TASK, ("a", "b"), WORTH)


def test_a_day_that_lacks_a_deployment_is_named_and_the_others_are_judged(monkeypatch):
    def read(_archive, days, _names):
        if days == [day_of(2)]:
            raise ArchiveError("the log does not know carts", where="here", allowed="front", advice="none")
        return DAY

    monkeypatch.setattr(comparing, "read_scaling_log", read)
    monkeypatch.setattr(comparing, "_twin_day", lambda _log, shift, *_: shift)
    archive = SimpleNamespace(days=lambda _table: [day_of(2), day_of(3)], facts={}, path="here")
    shifts = [TestDays(one, (), None) for one in (0, 1)]
    facts, days = comparing._days(archive, [day_of(1)], shifts, TASK, ("a", "b"), WORTH)
    assert days == [1]
    assert [one.note for one in facts] == [
        "2024-01-02 cannot be judged by its log: the log does not know carts",
        "",
    ]
    assert facts[0].days == ()
    with pytest.raises(ConfigError, match="does not know carts"):
        comparing._days(archive, [day_of(1)], shifts[:1], TASK, ("a", "b"), WORTH)


def day_of(number):
    return dt.date(2024, 1, number)


def test_a_refresh_judges_all_days_that_it_holds_out_whatever_lies_between(tmp_path, monkeypatch):
    """Trained until the 2nd; the log lacks the 3rd; the 4th and 6th are held out, the 5th is missing as well."""
    asked = []

    def compare(config, _title, policies):
        asked.append((config.shifts, sorted(policies)))
        return SimpleNamespace(build=lambda *_: None, code_version=1, settings={})

    found = SimpleNamespace(refused={})
    monkeypatch.setattr(usual_refresh_module, "load_comparison", lambda _folder: found)
    monkeypatch.setattr(usual_refresh_module, "train_days_in", lambda _twin: [day_of(1), day_of(2)])
    parts = usual_refresh(RunConfig(), compare, lambda _bundle, _twin: None, num_days=2)
    held_out = day_of(4), day_of(6)
    assert parts.judge(tmp_path, tmp_path, held_out, tmp_path, tmp_path, None, NOTHING_KEPT) is found
    shifts, policies = asked[-1]
    assert policies == [NEW, RUNNING]
    counts = {day_of(one): 10_000 for one in (1, 2, 4, 6)}
    (test,) = plan_shifts(counts, [day_of(1), day_of(2)], shifts).shifts
    assert (test.shift_days, test.days) == (0, held_out)


@pytest.mark.slow
def test_days_judged_together_are_one_stretch_of_episodes(monkeypatch):
    days = [day_of(2), day_of(4)]
    archive = SimpleNamespace(days=lambda _table: [day_of(1), *days], facts={}, path="here")
    told = []

    def read(_archive, asked, _names):
        told.append(list(asked))
        return made_log(3)

    monkeypatch.setattr(comparing, "read_scaling_log", read)
    monkeypatch.setattr(comparing, "_twin_day", lambda log, shift, *_: (len(log.time_s), shift))
    facts, found = comparing._days(
        archive, [day_of(1)], [TestDays(0, tuple(days), None)], TASK, ("a", "b"), WORTH
    )
    assert (told, found) == ([days], [(3 * 2880, 0)])
    assert facts[0].days == ("2024-01-02", "2024-01-04")
    (usual,) = plan_shifts({day_of(1): 9, day_of(2): 600}, [day_of(1)], ShiftConfig("0d")).shifts
    assert usual.days == (day_of(2),)
