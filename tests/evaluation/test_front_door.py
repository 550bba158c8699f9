"""The first screen of the README: ten lines from an archive to a table with a policy of one's own."""

import re
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest

from evaluation import compare, shifted_days
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.judges.config import JudgeConfig
from evaluation.problems.kits import KITS
from evaluation.simulator.logs import simulate
from evaluation.simulator.presets import preset
from logs_schema import Archive
from logs_schema.errors import ConfigError
from offline_rl import behaviour_cloning, ppo, train
from twin import fit
from twin.fits import FITS
from twin.placement.learned import AnswerConfig


def fullest_share(_key, observation, legal):
    return jnp.argmax(jnp.where(legal, observation.node[0], -jnp.inf), axis=0)


@pytest.mark.slow
def test_ten_lines_from_an_archive_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(preset("small"), requests_per_day=735.0)
    monkeypatch.setattr("evaluation.simulator.presets.PRESETS", (short,))
    simulate("small", 4, "mix", 0, tmp_path / "log")

    split = shifted_days(Archive(tmp_path / "log"), "0d", num_days=1)
    config = AnswerConfig(num_members=2, hidden=(16,), num_steps=40, evaluate_every=20)
    twin = fit("placement", split.train, seed=0, config=config, num_steps=64)
    bc = train(behaviour_cloning(updates=25, streams=4), twin.history(), seed=1)
    rl = train(ppo(start=bc, num_updates=1, updates_per_look=1), twin.rollouts(streams=8), seeds=range(2))
    found = compare(
        {"bc": bc, "ppo": rl, "mine": fullest_share, "wrong": lambda key, seen, legal: seen.missing},
        twin, split.test, intervals=IntervalConfig(num_replicates=200),
        judge=JudgeConfig(
            copies=2, num_steps=64, num_fit_steps=20, num_true_days=6, off_policy_updates=20,
            baselines=("random", "least_loaded", "least_expected_delay"),
        ),
    )  # fmt: skip

    table = found.table("on_time")
    for name in ("bc", "ppo", "mine", "history", "least_loaded", "size_intervals"):
        assert re.search(rf"│ {name} +│ +[01]\.\d{{3}} \[", table), name
    assert set(found.comparison.refused) == {"wrong"}
    estimated = {row.policy for row in found.comparison.off_policy}
    assert {"bc", "ppo", "mine", "random"} <= estimated
    assert not {"wrong", "history"} & estimated
    assert "importance sampling" in found.off_policy_table(["ppo"])
    assert "ppo" in " ".join(found.in_words())
    assert "<svg" in found.picture("truth", over="random")
    assert found.figure().count("<svg") == 1 + len(found.comparison.judges)
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


def test_every_problem_with_a_kit_is_fitted_from_python() -> None:
    assert {kit.name for kit in KITS} <= {one.problem for one in FITS}
