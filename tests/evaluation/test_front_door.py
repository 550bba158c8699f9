"""The first screen of the README: ten lines from an archive to a table with a policy of one's own."""

import datetime as dt
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import JudgedDays, UserJudge, compare, shifted_days
from evaluation.api import Compared, ShiftedDays, Split
from evaluation.baselines import Baseline
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.metrics import METRICS
from evaluation.comparison.training_days import DaysConfig
from evaluation.judges.config import JudgeConfig
from evaluation.judges.placement_entries import enter_players
from evaluation.problems.kits import KITS
from evaluation.problems.placement.kit import PLACEMENT_KIT
from evaluation.simulator.logs import simulate
from evaluation.simulator.presets import preset
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.logged_days import LoggedDays
from logs_schema.progress import SilentProgress
from offline_rl import Trained, behaviour_cloning, order_index, order_ppo, ppo, train
from offline_rl.networks import Example
from offline_rl.recipes.config import TrainingConfig
from tests.assignment.archives import write_log
from twin import fit
from twin.contracts import Trajectory
from twin.fits import FITS, find_fit
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin

ROOT = Path(__file__).resolve().parents[2]
SHORT = AnswerConfig(num_members=2, hidden=(16,), num_steps=40, evaluate_every=20)
QUICK = JudgeConfig(
    copies=2,
    num_steps=64,
    num_fit_steps=20,
    num_true_days=6,
    off_policy_updates=20,
    baselines=("random", "least_loaded", "least_expected_delay"),
)


def block_of(page: str, heading: str) -> Any:
    """The first block of Python under a heading, compiled."""
    found = re.search(rf"## {heading}\n.*?```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    return compile(found[1], page, "exec")


def standing_in(real: Callable[..., Any], calls: dict[str, Any], answer: Any) -> Callable[..., Any]:
    """A function that takes what `real` takes, keeps it in `calls`, and costs nothing."""

    def call(*positional: Any, **named: Any) -> Any:
        calls.setdefault(real.__name__, []).append(inspect.signature(real).bind(*positional, **named))
        return answer

    return call


def test_the_first_block_of_the_readme_runs_on_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word by word; what takes minutes is replaced by stand-ins that take the same arguments and no others."""
    write_log(tmp_path / "log", num_days=16, num_rows=510)
    monkeypatch.chdir(tmp_path)
    calls: dict[str, Any] = {}
    check = partial(standing_in, calls=calls)
    twin = SimpleNamespace(
        history=partial(check(PlacementTwin.history, answer="history"), None),
        rollouts=partial(check(PlacementTwin.rollouts, answer="rollouts"), None),
    )
    trained = of_seeds(0)
    table = partial(check(Compared.table, answer="the table"), None)
    monkeypatch.setattr("twin.fit", check(fit, answer=twin))
    monkeypatch.setattr("offline_rl.train", check(train, answer=trained))
    monkeypatch.setattr("offline_rl.ppo", check(ppo, answer=ppo(trained)))
    monkeypatch.setattr("evaluation.compare", check(compare, answer=SimpleNamespace(table=table)))
    exec(block_of("README.md", "Ten lines"), {})

    assert capsys.readouterr().out == "the table\n"
    (fitted,), (compared,), learned = calls["fit"], calls["compare"], calls["train"]
    assert fitted.arguments["problem"] in {one.problem for one in FITS}
    assert [one.arguments["recipe"].name for one in learned] == ["behaviour_cloning", "ppo"]
    settings = {name for one in calls["ppo"] for name in one.arguments["settings"]}
    assert settings <= {one.name for one in fields(TrainingConfig)}
    assert calls["table"][0].arguments["metric"] in {one.name for one in METRICS}
    test, policies = compared.arguments["test"], compared.arguments["policies"]
    assert isinstance(test, ShiftedDays)
    assert [len(one.days) for one in test.plan.shifts] == [1, 1, 1]
    assert fitted.arguments["days"].days == tuple(test.plan.train_days)
    assert isinstance(policies["rule"], Baseline)
    legal = np.array([[False, True], [True, False]])
    np.testing.assert_array_equal(policies["mine"](None, None, legal), [1, 0])


@pytest.mark.slow
def test_the_first_block_of_the_readme_ends_with_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word by word, with all that it calls; only sizes that it leaves open are small."""
    monkeypatch.setattr(
        "evaluation.simulator.presets.PRESETS", (replace(preset("small"), requests_per_day=735.0),)
    )
    simulate("small", 16, "mix", 0, tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("twin.fit", partial(fit, config=SHORT, num_steps=64))
    monkeypatch.setattr("offline_rl.behaviour_cloning", partial(behaviour_cloning, updates=25, streams=4))
    quick = {"judge": QUICK, "intervals": IntervalConfig(num_replicates=200)}
    monkeypatch.setattr("evaluation.compare", partial(compare, **quick))
    exec(block_of("README.md", "Ten lines"), {})
    shown = capsys.readouterr().out
    for name in ("bc", "ppo", "mine", "rule", "history"):
        assert re.search(rf"│ {name} +│( +[01]\.\d{{3}}.*│){{3}}", shown), name


def matching() -> UserJudge:
    """The judge that the README of evaluation shows."""
    defined: dict[str, Any] = {}
    exec(block_of("evaluation/README.md", "Policies and judges of your own"), defined)
    judge: UserJudge = defined["matching"]
    return judge


def test_the_judge_of_the_readme_counts_what_policy_and_log_agree_on() -> None:
    legal = np.ones((2, 3, 1, 2), bool)  # [steps, nodes, seats, windows]
    action = np.array([[[0, 1]], [[2, 2]]])
    log = SimpleNamespace(
        observation=legal,
        legal=legal,
        action=action,
        active=np.array([[[True, True]], [[True, False]]]),
        settled=np.ones(action.shape, bool),
        reward=np.array([[[1.0, 1.0]], [[0.0, 1.0]]]),
    )
    days = JudgedDays(cast(Any, None), None, 0, (), jax.random.key(0), lambda: log)
    values, weight = matching()(lambda _key, _seen, legal: jnp.full(legal.shape[1:], 2), days)
    np.testing.assert_array_equal(values["on_time"], [0.0, 0.0])
    np.testing.assert_array_equal(weight, [1, 0])
    values, weight = matching()(lambda _key, _seen, legal: jnp.full(legal.shape[1:], 1), days)
    np.testing.assert_array_equal(values["on_time"], [0.0, 1.0])
    np.testing.assert_array_equal(weight, [0, 1])


def fullest_share(_key, observation, legal):
    return jnp.argmax(jnp.where(legal, observation.node[0], -jnp.inf), axis=0)


@pytest.mark.slow
def test_ten_lines_from_an_archive_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(preset("small"), requests_per_day=735.0)
    monkeypatch.setattr("evaluation.simulator.presets.PRESETS", (short,))
    simulate("small", 4, "mix", 0, tmp_path / "log")

    split = shifted_days(Archive(tmp_path / "log"), "0d", num_days=1)
    twin = fit("placement", split.train, seed=0, config=SHORT, num_steps=64)
    bc = train(behaviour_cloning(updates=25, streams=4), twin.history(), seed=1)
    rl = train(ppo(start=bc, num_updates=1, updates_per_look=1), twin.rollouts(streams=8), seeds=range(2))
    found = compare(
        {"bc": bc, "ppo": rl, "mine": fullest_share, "wrong": lambda key, seen, legal: seen.missing},
        twin,
        split.test,
        intervals=IntervalConfig(num_replicates=200),
        judge=QUICK,
        judges={"matching": matching(), "broken": lambda policy, days: policy},
    )

    table = found.table("on_time")
    for name in ("bc", "ppo", "mine", "history", "least_loaded", "size_intervals"):
        assert re.search(rf"│ {name} +│ +[01]\.\d{{3}} \[", table), name
    assert set(found.comparison.refused) == {"wrong", "judge broken"}
    assert "judged by matching" in re.sub(r"\s+", " ", table)
    same = {name: found.comparison.cell("matching", 0, name, "on_time") for name in ("bc", "ppo", "mine")}
    assert all(0.0 <= one.value <= 1.0 for one in same.values())
    assert same["bc"].low < same["bc"].value < same["bc"].high
    assert "matching" in {one.judge for one in found.comparison.trust}
    assert found.comparison.cell("matching", 0, "history", "on_time") is None
    estimated = {row.policy for row in found.comparison.off_policy}
    assert {"bc", "ppo", "mine", "random"} <= estimated
    assert not {"wrong", "history"} & estimated
    assert "importance sampling" in found.off_policy_table(["ppo"])
    assert "ppo" in " ".join(found.in_words())
    assert "<svg" in found.picture("truth", over="random")
    assert found.figure().count("<svg") == 1 + len(found.comparison.judges)
    assert "<svg" in found.picture("matching")
    assert re.search(r"│ replay +│", found.judges_table())
    with pytest.raises(ConfigError, match="nothing to show by 'nobody'"):
        found.picture("nobody")
    assert rl.seeds == (0, 1)
    assert bc.policy()(None, *_one(twin)).shape == (1, 1)
    with pytest.raises(ConfigError, match="ppo does not learn from Trajectory"):
        train(ppo(start=bc), twin.history())


def _one(twin):
    history = twin.history()
    return (
        type(history.observation)(*(leaf[0][..., :1] for leaf in history.observation)),
        history.legal[0][..., :1],
    )


def test_problems_that_are_not_fitted_here_are_named() -> None:
    with pytest.raises(ConfigError, match=r"placement: which node .*; ordering: which waiting job"):
        fit("nothing", None)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Days of a tiny log."""
    folder = write_log(tmp_path_factory.mktemp("front_door") / "log", num_days=3, num_rows=60)
    return shifted_days(Archive(folder), "0d", num_days=1, min_requests=50)


def test_a_fit_says_what_it_does_not_take(split: Split) -> None:
    for days in (split, split.test, split.train.archive, "log", None):
        with pytest.raises(ConfigError, match=r"(?s)a twin is not learned from a \w+.*\.train"):
            fit("placement", cast(Any, days))
    for days in (
        LoggedDays(split.train.archive, ()),
        LoggedDays(split.train.archive, cast(Any, ("2024-01-01",))),
    ):
        with pytest.raises(ConfigError, match=r"no day"):
            fit("assignment", days)
    for seed in (-1, 1.5, "0", None, True, 2**70, range(2)):
        with pytest.raises(ConfigError, match=rf"(?s)seed = {re.escape(repr(seed))}.*whole number"):
            fit("assignment", split.train, seed=cast(Any, seed))
    with pytest.raises(ConfigError, match=r"(?s)unknown option num_step\b.*is num_steps meant"):
        fit("placement", split.train, num_step=64)
    with pytest.raises(ConfigError, match=r"(?s)config = \{.*AnswerConfig or None"):
        fit("placement", split.train, config={"num_members": 1})
    for num_steps in (0, -1, "64", 64.0):
        with pytest.raises(ConfigError, match=r"num_steps = "):
            fit("placement", split.train, num_steps=num_steps)
    assert fit("assignment", split.train, seed=cast(Any, np.int64(3))).num_rows == 60


def of_seeds(*seeds: int, network: str = "scorer", nodes: int = 3) -> Trained:
    """Stands in for the result of a training on a number of nodes."""
    shape = jax.ShapeDtypeStruct((nodes, 1), jnp.bool_)
    params = {"w": jnp.zeros((len(seeds), 2))}
    return Trained("made", cast(Any, None), Example(shape, shape, shape), params, seeds, network)


def test_training_says_what_it_does_not_take() -> None:
    history = Trajectory(*(None for _ in Trajectory._fields))
    with pytest.raises(ConfigError, match=r"(?s)behaviour_cloning is no recipe.*behaviour_cloning\(\)"):
        train(cast(Any, behaviour_cloning), history)
    for seed in (-1, "0", 1.5, None):
        with pytest.raises(ConfigError, match="seed = "):
            train(behaviour_cloning(), history, seed=cast(Any, seed))
    for seeds in ([], 3, "01", [1, 1], [0, -1]):
        with pytest.raises(ConfigError, match=r"(?s)seeds = .*one or more different"):
            train(behaviour_cloning(), history, seeds=cast(Any, seeds))
    with pytest.raises(ConfigError, match=r"(?s)'3' is of the wrong type.*int"):
        behaviour_cloning(updates=cast(Any, "3"))


def test_recipes_refuse_settings_and_starts_when_they_are_made() -> None:
    start = of_seeds(0)
    for recipe in (ppo, order_ppo):
        for nothing in ({}, {"start": None}):
            with pytest.raises(
                ConfigError, match=r"(?s)starts from a trained policy.*give it the result of train\("
            ):
                recipe(**nothing)
        for wrong in ("policy", start.params):
            with pytest.raises(ConfigError, match=r"(?s)start is a .*allowed: a Trained.*train\("):
                recipe(start=cast(Any, wrong))
    with pytest.raises(ConfigError, match="order_ppo does not start from made"):
        order_ppo(start=start)
    with pytest.raises(ConfigError, match="ppo does not start from made"):
        ppo(start=of_seeds(0, network="order_scorer"))
    with pytest.raises(ConfigError, match=r"(?s)unknown key num_update\b.*is num_updates meant"):
        ppo(start=start, num_update=1)
    with pytest.raises(ConfigError, match=r"(?s)seeds.*give them to train"):
        ppo(start=start, seeds=(1, 2))
    for value in (0, -1, 1.5, "1", True):
        with pytest.raises(ConfigError, match=r"num_updates|wrong type"):
            ppo(start=start, num_updates=value)
    for name, value in (("num_step", 1), ("num_steps", "1"), ("seeds", (1,))):
        with pytest.raises(ConfigError, match=r"unknown key num_step|wrong type|give them to train"):
            order_index(**{name: value})
    assert ppo(start=start, num_updates=np.int64(1), most_response=None).name == "ppo"


def test_policies_of_another_system_are_left_out_by_name() -> None:
    mine, other = of_seeds(0), of_seeds(0, nodes=4)
    entered = enter_players({"mine": mine, "other": other}, cast(Any, None), mine.example, [])
    assert set(entered.trained) == {"mine"}
    assert "trained on another system" in str(entered.refused["other"])


def test_days_and_comparisons_say_what_they_do_not_take(split: Split) -> None:
    archive = split.train.archive
    for wrong in ("log", Path("log"), None):
        with pytest.raises(ConfigError, match=r"(?s)archive is a .*Archive\("):
            shifted_days(cast(Any, wrong))
    given: dict[str, Any]
    for given in (
        {"shifts": ["0d", "1d"]},
        {"shifts": 1},
        {"num_days": "1"},
        {"num_days": 1.5},
        {"num_days": True},
        {"last_day": dt.datetime(2024, 1, 2)},
        {"min_requests": None},
        {"max_width_days": 1.5},
    ):
        with pytest.raises(
            ConfigError, match=rf"(?s)(is of the wrong type|is not a date).*{next(iter(given))}"
        ):
            shifted_days(archive, **given)
    assert (
        shifted_days(archive, "0d", last_day=cast(Any, "2024-01-02"), min_requests=9).train.days[-1].day == 2
    )

    twin = fit("assignment", split.train)
    for test in (split, split.train, archive, None):
        with pytest.raises(ConfigError, match=r"(?s)test is a .*\.test"):
            compare({}, twin, cast(Any, test))
    for policies in ([fullest_share], of_seeds(0), None, {1: fullest_share}):
        with pytest.raises(ConfigError, match=r"(?s)policies = .*a mapping by name"):
            compare(cast(Any, policies), twin, split.test)
    with pytest.raises(ConfigError, match=r"(?s)judges = .*a mapping by name"):
        compare({}, twin, split.test, judges=cast(Any, [fullest_share]))
    with pytest.raises(ConfigError, match="judge 'ours' is no function"):
        compare({}, twin, split.test, judges={"ours": cast(Any, "truth")})
    with pytest.raises(ConfigError, match=r"(?s)unknown option interval\b.*is intervals meant"):
        compare({}, twin, split.test, interval=IntervalConfig())
    with pytest.raises(ConfigError, match=r"(?s)progress = True.*where: compare.*None for none"):
        compare({}, twin, split.test, progress=cast(Any, True))
    with pytest.raises(ConfigError, match=r"(?s)intervals = 200.*IntervalConfig or None"):
        compare({}, twin, split.test, intervals=200)


def test_a_twin_that_knows_the_test_days_is_not_compared_on_them(split: Split) -> None:
    judge = PLACEMENT_KIT.need(PLACEMENT_KIT.judge, "this test")
    twin = SimpleNamespace(encoding=SimpleNamespace(train_days=tuple(split.train.archive.days("requests"))))
    with pytest.raises(ConfigError, match=r"(?s)test days overlap the training window.*2024-01-03"):
        judge({}, cast(Any, twin), split.train.archive, split.test.plan, SilentProgress())


def test_a_twin_says_what_it_does_not_take(tmp_path: Path) -> None:
    twin = PlacementTwin(*(cast(Any, None) for _ in fields(PlacementTwin)))
    for streams in (0, "320", None):
        with pytest.raises(ConfigError, match="streams = "):
            twin.rollouts(cast(Any, streams))
    with pytest.raises(ConfigError, match=r"(?s)randomisation is a float.*a Randomisation"):
        twin.rollouts(randomisation=cast(Any, 0.2))
    for hidden in (16, ("16",), 1.5):
        with pytest.raises(ConfigError, match=r"(?s)(is not a list|wrong type).*\[twin\] hidden"):
            AnswerConfig(hidden=cast(Any, hidden))
    with pytest.raises(ConfigError, match=r"(?s)'5' is of the wrong type.*\[judge\] copies"):
        JudgeConfig(copies=cast(Any, "5"))
    assert AnswerConfig(num_members=cast(Any, np.int64(2)), hidden=()).num_members == 2
    with pytest.raises(ProductError, match="there is no such folder"):
        twin.save(str(tmp_path / "nothing"))
    with pytest.raises(ProductError, match=r"cannot read encoding\.json"):
        PlacementTwin.load(str(tmp_path))


def test_every_problem_with_a_kit_is_fitted_from_python() -> None:
    assert {kit.name for kit in KITS} <= {one.problem for one in FITS}


def test_bundles_are_trained_to_see_every_node_that_they_are_told_of() -> None:
    by_default = inspect.signature(find_fit("placement").fit).parameters["view"].default
    assert DaysConfig().view == by_default == "full"
