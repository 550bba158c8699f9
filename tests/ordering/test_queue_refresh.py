"""The daily job on the log of a queue: interrupted, against a bad and an equal running order, and what it refuses."""

import datetime as dt
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.training_days import DaysConfig
from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import Result, judgements_of
from evaluation.pipeline.refresh.job import refresh
from evaluation.problems.configuration import OrderConfig, WeeksConfig, load_config
from evaluation.problems.ordering.exporting import QueueBundle, export_order, load_order
from evaluation.problems.ordering.index_orders import index_exponents
from evaluation.problems.ordering.refreshing import judge_orders, newest_weeks, refuse_other
from evaluation.problems.ordering.weeks import log_days
from logs_schema import Archive
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, verify
from logs_schema.progress import SilentProgress
from offline_rl.ordering.index import SMITH, Index
from offline_rl.ordering.index_scorer import scorer_of
from offline_rl.ordering.predicting import NETWORK, SEEN
from offline_rl.ordering.programs import OrderTrainingConfig
from offline_rl.runner import load_network
from tests.evaluation.refreshing import (
    THRESHOLDS,
    Killed,
    KilledAt,
    assert_fails_its_certificate,
    command,
    created,
    cut_last_day,
)
from twin.ordering.jobs import read_jobs
from twin.ordering.types import Pool

JOB = """
[log]
format = "native"
paths = ["log"]
[order.intervals]
num_replicates = 200
[order.training]
seeds = [0]
[certify]
num_replicates = 200
max_rows = 400
[certify.thresholds]
"""
LOOSE = THRESHOLDS | {"utilisation": 50.0}
SHORTEST, LONGEST = SMITH, (-1.0, -1.0, 0.0, -1.0, 0.0)
DAYS = {"first_day": "2001-09-01", "last_day": "2001-09-28", "num_days": 28}


@pytest.fixture(scope="module")
def folder(queue_made, tmp_path_factory):
    """All days but the last, the last one, and a loose and a strict configuration."""
    made = tmp_path_factory.mktemp("refresh")
    cut_last_day(Archive(queue_made[0] / "archive"), made)
    for name, thresholds in (
        ("loose", LOOSE),
        ("strict", LOOSE | {"arrivals": -1.0}),  # a twin would have to be nearer than real days are
    ):
        lines = [f"{key} = {value}" for key, value in thresholds.items()]
        (made / f"{name}.toml").write_text(JOB + "\n".join(lines) + "\n")
    return made


@pytest.fixture(scope="module")
def exported(folder):
    """The first refresh, killed at every stage: nothing is running yet."""
    for stage in ("append", "fit on 28 days", "generate weeks", "learn"):
        with pytest.raises(Killed):
            refreshed(folder, progress=KilledAt(stage))
        assert not (folder / "work" / "refresh" / "bundle").exists()
    decision, products = refreshed(folder)
    bundle = folder / "deployed"
    shutil.copytree(products["bundle"] / "bundle", bundle)
    return decision, products, bundle


def refreshed(folder, running=None, progress=None, *, work="work", config="loose", **settings):
    return refresh(
        load_config(folder / f"{config}.toml"),
        folder,
        folder / "night",
        folder / work,
        running,
        RefreshConfig(**settings),
        progress or SilentProgress(),
    )


def bundle_of(folder, exponents, processors=16.0, **days):
    """A bundle of an index that was not learned."""
    predictor = NETWORK.init(jax.random.key(4), jnp.zeros((len(SEEN), 1)))
    pool = Pool(processors, easy=True)
    out = folder / f"{processors:g} {exponents[0]:g}"
    scorer = scorer_of(Index(jax.tree.map(np.asarray, predictor), np.array(exponents)), pool)
    export_order(scorer, out, QueueBundle(pool, OrderTrainingConfig(), DAYS | days))
    return out


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Indices: the shortest first; the longest first, of days that are judged; and the shortest of a larger pool."""
    folder = tmp_path_factory.mktemp("orders")
    longest = bundle_of(folder, LONGEST, last_day="2001-12-30")
    return bundle_of(folder, SHORTEST), longest, bundle_of(folder, SHORTEST, 24.0)


@pytest.mark.slow
def test_replay_of_the_newest_weeks_tells_orders_apart(queue_made, bundles):
    folder, _ = queue_made
    archive, twin = Archive(folder / "archive"), folder / "twin"
    shortest, longest, larger = bundles
    days, last = newest_weeks(archive, 28, DaysConfig(), OrderConfig())
    assert (len(days), last) == (28, days[0] - dt.timedelta(days=1))
    end = log_days(read_jobs(archive))[1]
    assert (days[-1] - EPOCH_DATE).days == end - 1 - WeeksConfig().num_drain_days
    with pytest.raises(ConfigError, match="too few to learn from 60 and judge on 50"):
        newest_weeks(archive, 50, DaysConfig(num_days=60), OrderConfig())

    order = OrderConfig(intervals=IntervalConfig(num_replicates=200))
    found = judge_orders(archive, twin, days, shortest, longest, order, SilentProgress())
    (judgement,) = judgements_of(found)
    assert (judgement.judge, judgement.verdict, found.main_metric) == ("replay", "better", "bounded_slowdown")
    assert judgement.difference.high < 0.0
    turned = judgements_of(judge_orders(archive, twin, days, longest, shortest, order, SilentProgress()))[0]
    assert (turned.verdict, turned.new, turned.running) == ("worse", judgement.running, judgement.new)
    assert found.shifts[0].num_requests == archive.read("requests", days=days).num_rows
    assert found.cell("replay", 0, "sjf+easy", "bounded_slowdown").value < judgement.running.value
    assert any(note.startswith("jain_fairness: new ") for note in found.notes)

    assert any("days up to 2001-12-30, including test days" in note for note in found.notes)
    same = judge_orders(archive, twin, days, shortest, shortest, order, SilentProgress())
    assert judgements_of(same)[0].verdict == "cannot tell"
    assert not any("it may profit" in note for note in same.notes)

    refuse_other(longest, twin)
    with pytest.raises(OtherSystemError, match="another pool") as refused:
        refuse_other(larger, twin)
    assert "24 processors" in str(refused.value)


@pytest.mark.slow
def test_the_first_order_is_exported_on_its_certificate_and_finished_work_stands(folder, exported):
    decision, products, bundle = exported
    assert decision.result is Result.EXPORTED, decision.in_words()
    assert decision.history["requests_added"] > 0
    assert (len(decision.train_days), len(decision.judged_days)) == (28, 28)
    assert decision.train_days[-1] < decision.judged_days[0]
    contract = load_network(bundle).contract
    assert contract.certificate == decision.certificate
    chosen = read_manifest(products["policy"]).extra["ladder"]["order"]
    np.testing.assert_allclose(load_order(bundle)[0].exponents, index_exponents(chosen), rtol=1e-5, atol=1e-6)
    assert chosen in contract.trained_on["chosen"]
    assert contract.trained_on["last_day"] < decision.judged_days[0]
    assert read_manifest(bundle).content_hash == decision.new
    for path in products.values():
        verify(path)
    for running in (None, bundle):
        again, same = refreshed(folder, running)
        assert (again, created(same)) == (decision, created(products))


@pytest.mark.slow
def test_a_better_order_is_exported_an_equal_one_is_not(folder, exported, bundles):
    _, _, deployed = exported
    _, longest, larger = bundles
    with pytest.raises(Killed):
        refreshed(folder, longest, KilledAt("judge"))
    decision, products = refreshed(folder, longest)
    assert decision.result is Result.EXPORTED, decision.in_words()
    assert decision.judgements[0].verdict == "better"
    assert decision.running == read_manifest(products["running"] / "bundle").content_hash
    index, pool = load_order(deployed)
    alike = scorer_of(index._replace(exponents=index.exponents * (1.0 + 1e-4)), pool)
    export_order(alike, folder / "alike", QueueBundle(pool, OrderTrainingConfig(), DAYS))
    kept, products = refreshed(folder, folder / "alike")
    assert kept.result is Result.KEPT, kept.in_words()
    assert kept.new == read_manifest(deployed).content_hash
    assert "bundle" not in products
    told, _ = refreshed(folder, larger)
    assert (told.result, told.running) == (Result.EXPORTED, None)
    assert "another pool (24 processors)" in told.notes[0]


@pytest.mark.slow
def test_without_a_passed_certificate_only_force_and_a_better_order_export(folder, bundles, capsys):
    words = command(folder, "strict")
    assert_fails_its_certificate(words, capsys)
    assert main([*words, "--force", "--no-progress"]) == 11
    assert "so the new one is not exported" in capsys.readouterr().out
    assert main([*words, "--force", "--bundle", str(bundles[1]), "--json", "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    contract = load_network(told["bundle"]).contract
    assert contract.certificate is None
    assert contract.trained_on["certification"] == "trained in a twin that failed its certificate"
    decision = folder / "strict" / "refresh" / "decision"
    before = read_manifest(decision).created
    for more in ([], ["--bundle", told["bundle"]], ["--bundle", str(bundles[1])]):
        # Repeated without --force: the same decision
        assert main([*words, *more, "--json", "--no-progress"]) == 0
        assert (json.loads(capsys.readouterr().out), read_manifest(decision).created) == (told, before)
    assert_fails_its_certificate([*words, "--accept", "not-worse"], capsys)  # another question


@pytest.mark.slow
def test_what_cannot_be_refreshed_is_refused_by_name(folder, exported, tmp_path, capsys):
    words = command(folder, "loose", "work")
    assert main([*words, "--judge-days", "80", "--no-progress"]) == 2
    assert "too few to learn from 28 and judge on 80" in capsys.readouterr().err
    index, pool = load_order(exported[2])
    changed = scorer_of(index, pool)
    changed["params"]["context"]["kernel"] += 0.1
    export_order(changed, tmp_path / "other", QueueBundle(pool, OrderTrainingConfig(), DAYS))
    assert main([*words, "--bundle", str(tmp_path / "other"), "--no-progress"]) == 2
    assert "holds no index" in capsys.readouterr().err
    assert main([*words, "--bundle", str(exported[2]), "--problem", "placement", "--no-progress"]) == 2
    assert "is of the problem 'ordering', the refresh of 'placement'" in capsys.readouterr().err
