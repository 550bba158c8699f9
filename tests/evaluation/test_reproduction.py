"""Table 2 in small: every policy on every day, paired differences, the reference's share, intervals."""

import datetime as dt
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import certification_in
from evaluation.commands import reproduce
from evaluation.commands.cli import main
from evaluation.problems.configuration import AnswerConfig, LogConfig
from evaluation.reproduction import table2
from evaluation.reproduction.benches.reference import ReferenceConfig
from evaluation.reproduction.benches.reference_cache import kept_reference
from evaluation.reproduction.showing_table2 import as_table
from evaluation.reproduction.simulated_days import DayShares
from evaluation.reproduction.table2 import Table2Config, table, train_all, unguarded
from evaluation.reproduction.table2_days import simulate_days
from evaluation.reproduction.table2_log import last_day, log_step
from evaluation.simulator.logs import simulate
from evaluation.simulator.presets import preset
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress
from offline_rl.contract import LEAST_EXPECTED_RESPONSE
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.ladder import UNTRUSTED_GAIN, RungStep
from offline_rl.recipes.schedulers import load_schedulers
from offline_rl.rules.in_twin import DESCRIPTIONS, TUNED
from twin.placement.model import PlacementTwin

TRAIN = TrainingConfig(
    seeds=(0, 1), num_updates=1, num_streams=8, clone_updates=25, clone_streams=4, updates_per_look=1,
    from_logs=("cql",), from_logs_updates=2, tuning_streams=8, residual_updates=1,
)  # fmt: skip
TINY = Table2Config(
    "small",
    certified=False,
    days=(0, 30),
    num_replications=6,
    max_requests=600,
    train=TRAIN,
    twin=AnswerConfig(num_members=2, hidden=(8,), num_steps=20, evaluate_every=10),
)

WITH_DEADLINES = [name for name in DESCRIPTIONS if name != TUNED[LEAST_EXPECTED_RESPONSE]]
"""Rules from the log of a table whose requests have deadlines."""


@pytest.mark.slow
def test_the_whole_table_from_nothing(tmp_path):
    config = ReferenceConfig(
        num_updates=1, most_updates=1, updates_per_look=1, requests_per_update=400, least_steps=20
    )
    references = [kept_reference(preset("small"), day, config, tmp_path / "references") for day in TINY.days]
    products = train_all(TINY, tmp_path / "work", SilentProgress())
    simulated = simulate_days(TINY, products, references, SilentProgress())
    found = table(TINY, simulated, load_schedulers(products["policy"])[0], references)
    wanted = {
        "random",
        "least_loaded",
        "behaviour",
        "least_expected_delay",
        "bc",
        "bc_greedy",
        "cql",
        "twin",
        "reference",
        "ladder",
        "residual",
        *WITH_DEADLINES,
    }
    assert {(row["policy"], row["shift_days"]) for row in found["rows"]} == {
        (name, day) for name in wanted for day in (0, 30)
    }
    for row in found["rows"]:
        assert 0 <= row["on_time_low"] <= row["on_time"] <= row["on_time_high"] <= 1
        assert row["num_seeds"] == (2 if row["policy"] in ("twin", "cql") else 1)
        if row["num_seeds"] == 1:  # Student's width over two seeds, hardly trained, may reach 0 and 1
            assert 0 < row["on_time_low"] < row["on_time_high"] < 1
    by_policy = {row["policy"]: row for row in found["rows"] if row["shift_days"] == 0}
    assert (
        by_policy["least_expected_delay"]["on_time"]
        > by_policy["least_loaded"]["on_time"]
        > by_policy["random"]["on_time"]
    )
    assert by_policy["expected_on_time"]["on_time"] > by_policy["least_expected_delay"]["on_time"]
    best = by_policy["random"]["best_rule"]
    assert by_policy[best]["on_time"] == max(by_policy[name]["on_time"] for name in WITH_DEADLINES)
    assert by_policy[best]["failures_avoided"] == pytest.approx(0.0)
    assert by_policy["ladder"]["promised"] in {
        by_policy[name]["promised"] for name in (*WITH_DEADLINES, "twin", "residual", "cql")
    }
    # Hardly trained, and already no worse
    assert by_policy["reference"]["on_time"] >= by_policy[best]["on_time"]
    assert {one["reference"] for one in found["differences"]} >= {"random", "bc", "behaviour", "cql"}
    json.dumps(found, allow_nan=False)
    assert as_table(found)


@pytest.mark.slow
def test_the_learner_without_guards_lives_in_the_same_table(tmp_path):
    config = unguarded(replace(TINY, days=(0,)))
    products = train_all(config, tmp_path, SilentProgress())
    schedulers = load_schedulers(products["policy"])[0]
    simulated = simulate_days(config, products, (), SilentProgress())
    found = table(config, simulated, schedulers, ())
    rows = {row["policy"]: row["num_seeds"] for row in found["rows"]}
    assert rows["twin"] == 2
    assert "cql" not in rows
    assert PlacementTwin.load(products["twin"]).config.num_members == 1


@pytest.mark.slow
def test_the_ladder_reads_the_certificate_of_the_table_s_own_twin(tmp_path, monkeypatch):
    """A hardly trained twin fails on the day after the training day, and only large gains count."""
    brief = CertifyConfig(max_days=1, enough_rows=1, clone_updates=5, num_steps=64, rankings=False)
    monkeypatch.setattr(table2, "CERTIFY", brief)
    monkeypatch.setattr(table2, "LATER_DAYS", 1)
    config = replace(TINY, days=(0,), certified=True, train=replace(TRAIN, seeds=(0,), from_logs=()))
    products = train_all(config, tmp_path, SilentProgress())
    certificate = json.loads((products["certificate"] / "certificate.json").read_text())
    assert (certificate["train_days"], certificate["days"]) == (["2024-01-01"], ["2024-01-02"])
    certification = certification_in(products["certificate"])
    assert certification.failed
    facts = read_manifest(products["policy"], "policy").extra
    assert certification.facts().items() <= facts.items()
    near = [*WITH_DEADLINES, "residual"]
    assert [one["policy"] for one in facts["rungs"]][
        : len(near)
    ] == near  # all others must beat what is near a rule
    taken = [one for one in facts["rungs"][1:] if one["taken"] and one["policy"] not in near]
    assert all(one["gain"] >= UNTRUSTED_GAIN for one in taken)


def test_seeds_and_lives_are_both_drawn_and_differences_are_paired():
    random = np.random.default_rng(0)
    replications = random.normal(0.0, 0.05, 12)  # a busy day is busy for everybody
    seeds = np.array([0.0, 0.02, 0.04])[:, None]

    step = RungStep(0.88, 0.0, 0.0, 0.0, taken=True, row=0, is_chosen=True)
    told = SimpleNamespace(held_out_curve=np.array([[0.8, 0.9]]), ladder={"twin": step})
    alike = np.zeros((1, 12))

    def shares(on_time: np.ndarray, offload: float) -> DayShares:
        return DayShares(on_time, np.full_like(on_time, offload), np.full_like(on_time, 0.25))

    simulated = {
        ("random", 0): shares(0.5 + replications + alike, 0.3),
        ("twin", 0): shares(0.7 + seeds + replications, 0.4),
        ("reference", 0): shares(0.9 + replications + alike, 0.5),
        ("expected_on_time", 0): shares(0.6 + replications + alike, 0.5),
        ("least_expected_response", 0): shares(0.2 + replications + alike, 0.5),
    }
    config = Table2Config("small", days=(0,), num_replications=12)
    found = table(config, simulated, told, ())
    twin = next(row for row in found["rows"] if row["policy"] == "twin")
    assert twin["on_time_over_random"] == pytest.approx(0.22)
    assert twin["best_rule"] == "expected_on_time"
    # .12 of the .3 between the best rule and the reference
    assert twin["share_of_reference"] == pytest.approx(0.4)
    assert twin["failures_avoided"] == pytest.approx(0.12 / (0.4 - replications.mean()), rel=0.05)
    assert found["beaten"] == []
    assert twin["overflow"] == 0.25
    width, paired = (
        twin[f"{name}_high"] - twin[f"{name}_low"] for name in ("on_time", "on_time_over_random")
    )
    assert paired < 0.95 * width  # what a day does to both cancels; what is left is the seeds
    assert paired == pytest.approx(2 * 4.30 * 0.02 / np.sqrt(3), rel=0.15), "Student's width over three seeds"
    assert found["in_model_on_time"] == pytest.approx(0.9)
    assert (twin["promised"], twin["low"], twin["high"]) == (0.88, twin["on_time_low"], twin["on_time_high"])
    assert {one["reference"]: one["verdict"] for one in found["differences"]} == {
        "random": "better",
        "expected_on_time": "better",
        "least_expected_response": "better",
    }
    low = simulated | {("reference", 0): simulated["expected_on_time", 0]}
    (row,) = (one for one in table(config, low, told, ())["beaten"] if one["policy"] == "twin")
    assert row["gap"] == pytest.approx(0.12)


@pytest.mark.slow
def test_a_log_of_a_later_day_and_of_its_first_requests_only(tmp_path):
    log = LogConfig(preset="small", days=3)
    step = log_step(log, 350)
    step.build(tmp_path, {}, SilentProgress())
    cut = Archive(tmp_path / "archive")
    assert cut.days("requests") == [last_day(log)] == [dt.date(2024, 1, 3)]
    simulate("small", 3, "mix", 0, tmp_path / "whole")
    whole = Archive(tmp_path / "whole")
    first = whole.read("requests", days=[last_day(log)]).slice(0, 350)
    assert cut.read("requests").to_pylist() == first.to_pylist()
    assert cut.nodes().to_pylist() == whole.nodes().to_pylist()
    assert log_step(LogConfig(preset="small", days=1), None).config != step.config


@pytest.mark.slow
def test_a_log_goes_on_after_the_day_that_is_learned_from(tmp_path):
    log = LogConfig(preset="small", days=2)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    simulate("small", 3, "mix", 0, whole)
    for count in (None, 350):
        log_step(log, count, 1).build(cut, {}, SilentProgress())
        found, later = Archive(cut / "archive"), Archive(whole).read("requests", days=[dt.date(2024, 1, 3)])
        assert found.days("requests") == [last_day(log), dt.date(2024, 1, 3)]
        first = Archive(whole).read("requests", days=[last_day(log)])
        kept = first if count is None else first.slice(0, count)
        assert found.read("requests", days=[last_day(log)]).to_pylist() == kept.to_pylist()
        assert found.read("requests", days=[dt.date(2024, 1, 3)]).to_pylist() == later.to_pylist()
        shutil.rmtree(cut)
    log_step(replace(log, days=1), None, 2).build(cut, {}, SilentProgress())
    assert Archive(cut / "archive").content_hash == Archive(whole).content_hash


def test_impossible_tables_are_refused(capsys):
    with pytest.raises(ConfigError, match="replications"):
        Table2Config(num_replications=1)
    with pytest.raises(ConfigError, match="at least 300 requests"):
        Table2Config(num_requests=100)
    with pytest.raises(ConfigError, match="no behaviour 'nobody'"):
        Table2Config(behaviour="nobody")
    with pytest.raises(ConfigError, match="unknown view"):
        Table2Config(view="sideways")
    assert Table2Config(days=(0, 7), train_day=30).simulated_days == (30, 37)
    assert reproduce.NAME == "reproduce"
    with pytest.raises(SystemExit):
        main(["reproduce", "table9"])
    assert "table2" in capsys.readouterr().err
