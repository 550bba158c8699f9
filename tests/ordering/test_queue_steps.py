"""`schedtwin train`, `compare`, `export` and `generate` on the twin of a queue."""

import datetime as dt
import json

import numpy as np
import pytest

from evaluation.comparison.products import load_comparison
from evaluation.problems.configuration import WeeksConfig, load_config
from evaluation.problems.ordering.exported_order import winner_of
from evaluation.problems.ordering.exporting import load_order, policy_of_bundle
from evaluation.problems.ordering.fixed_orders import order_of_setting
from evaluation.problems.ordering.index_orders import index_name, play_index
from evaluation.problems.ordering.judging import weeks_after
from evaluation.problems.ordering.ladder import ChosenOrder, choice_at
from evaluation.problems.ordering.order_candidates import INDICES, play_of
from evaluation.problems.ordering.past_weeks import known_at
from evaluation.problems.ordering.steps import (
    NOT_COMPARED,
    build_queue_policy,
    load_queue_policy,
    training_of,
    winner_to_export,
)
from evaluation.problems.ordering.weeks import cut_week, log_days
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.layout import date_of
from logs_schema.product import read_manifest, writing
from logs_schema.progress import SilentProgress
from offline_rl.ordering.learning import learn_index, samples_before
from offline_rl.runner import WaitingJob, load_queue
from tests.command import run_silently as run
from tests.ordering.making import INDEX_ONLY, QUICK
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import load_queue_twin
from twin.ordering.types import Pool
from twin.placement.model import load_encoding

WITH_CLONE = """num_ppo_seeds = 0
num_streams = 8
num_steps = 32
num_episodes = 2
num_held_out = 1
clone_updates = 5
"""


@pytest.fixture(scope="module")
def trained(queue_made, tmp_path_factory):
    """The folder of the queue's products, a configuration, and a policy of one index."""
    folder, _ = queue_made
    own = tmp_path_factory.mktemp("trained")
    (own / "order.toml").write_text(QUICK + INDEX_ONLY)
    words = ("--config", own / "order.toml", "--out", own / "policy")
    assert run("train", folder / "twin", *words, "--force") == 0
    return folder, own


def test_training_asks_for_a_passed_certificate_or_force(queue_made, tmp_path, capsys):
    assert run("train", queue_made[0] / "twin", "--out", tmp_path / "policy") == 2
    assert "certificate cannot tell" in capsys.readouterr().err
    assert not (tmp_path / "policy").exists()


@pytest.mark.slow
def test_the_index_is_the_one_that_the_log_itself_teaches(trained):
    folder, own = trained
    policy, twin = load_queue_policy(own / "policy"), load_queue_twin(folder / "twin")
    samples = samples_before(read_jobs(Archive(folder / "archive")), twin.pool, twin.anchor, twin.num_days)
    index, loss = learn_index(0, samples)
    (ours,) = policy.learned.indices
    for name, layer in index.predictor["params"].items():
        assert np.array_equal(ours.predictor["params"][name]["kernel"], layer["kernel"])
    facts = read_manifest(own / "policy", "policy").extra
    assert facts["losses"] == [round(loss, 6)]
    assert policy.config.tick_s == 1.0  # what is guessed of unfinished jobs is not on whole seconds
    assert "cannot tell" in facts["certification"]


@pytest.mark.slow
def test_rules_and_index_are_compared_and_the_certificate_is_mentioned(trained, tmp_path, capsys):
    folder, own = trained
    out = tmp_path / "comparison"
    words = (
        folder / "archive",
        folder / "twin",
        own / "policy",
        "--config",
        own / "order.toml",
        "--out",
        out,
    )
    assert run("compare", *words) == 0
    comparison = load_comparison(out)
    assert len(comparison.policies) == 20
    assert {judge.name for judge in comparison.judges} == {"replay", "training twin"}
    assert {shift.shift_days for shift in comparison.shifts} == {0, 7}
    facts = read_manifest(folder / "twin").extra
    assert comparison.train_days[-1] == facts["last_day"]
    assert (
        comparison.shifts[0].days[0]
        == (dt.date.fromisoformat(facts["last_day"]) + dt.timedelta(days=1)).isoformat()
    )
    found = comparison.cell("replay", 0, "index", "bounded_slowdown")
    assert found.value < comparison.cell("replay", 0, "fcfs", "bounded_slowdown").value
    assert "trained in a twin whose certificate cannot tell" in (out / "report.html").read_text()
    assert "ranks of 16 policies, twin against replay, 7d" in capsys.readouterr().out


@pytest.mark.slow
def test_the_index_is_exported_with_what_is_known_of_its_twin(trained, tmp_path, capsys):
    folder, own = trained
    assert run("export", own / "policy", "--out", tmp_path / "bundle") == 0
    contract = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert contract["trained_on"]["twin"] == read_manifest(folder / "twin").content_hash
    assert "cannot tell" in contract["trained_on"]["certification"]
    features = [*contract["choice_features"], *contract["context_features"]]
    assert all(one["low"] is not None and one["low"] <= one["high"] for one in features)
    assert run("inspect", tmp_path / "bundle") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "not passed: trained in a twin whose certificate cannot tell" in told
    assert "not known" not in told
    policy = load_queue(tmp_path / "bundle")
    waiting = [WaitingJob(0.0, 8.0, 14_400.0), WaitingJob(1.0, 1.0, 600.0)]
    assert policy.decide(waiting, [], {}, 2.0) == 1
    assert run("export", own / "policy", "--seed", 5, "--out", tmp_path / "other") == 2
    assert "no index of seed 5" in capsys.readouterr().err


@pytest.mark.slow
def test_training_order_export_and_the_bundle_agree_on_one_ladder(trained, tmp_path, capsys):
    """The choice in a policy is that of the log itself, and what its bundle plays is what that choice plays."""
    folder, own = trained
    facts, twin = read_manifest(own / "policy").extra["ladder"], load_queue_twin(folder / "twin")
    jobs, pool = read_jobs(Archive(folder / "archive")), Pool(twin.pool.processors, easy=True)
    chosen = choice_at(known_at(jobs, twin.anchor), pool, twin.anchor, twin.num_days, WeeksConfig(), 0)
    assert ChosenOrder(**facts) == chosen
    assert run("export", own / "policy", "--out", tmp_path / "bundle") == 0
    contract = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert chosen.order in contract["trained_on"]["chosen"]
    assert order_of_setting(contract["setting"] | contract["setting"]["fallback"]).name == chosen.rule
    index = load_queue_policy(own / "policy").learned.indices[0]
    week, _ = cut_week(jobs, pool, jobs.logged_start_s, twin.anchor + 7, WeeksConfig())
    (play,) = policy_of_bundle(tmp_path / "bundle")[0].plays
    np.testing.assert_array_equal(play([week])[0], play_of(chosen.order, lambda: index, pool)(week))
    others = index._replace(exponents=INDICES[1])
    assert not np.array_equal(play([week])[0], play_index(others, pool, week))
    capsys.readouterr()
    dates = f"{date_of(twin.anchor)}..{date_of(log_days(jobs)[1])}"
    words = ("--between", dates, "--anchors", 1, "--shifts", "7d", "--index-only", "--seeds", 1, "--json")
    assert run("order", folder / "archive", *words) == 0
    facts = json.loads(capsys.readouterr().out)["archive"]
    assert (facts["ladder"], facts["best_rule"]) == (chosen.order, chosen.rule)


def test_what_the_ladder_chose_is_exported_be_it_a_rule_or_an_index():
    one = ChosenOrder("saf+easy", "saf+easy", 0.0, "why")
    weighted = one._replace(order="predicted(1,1,0.06)")
    usual, other = (one._replace(order=index_name(exponents)) for exponents in INDICES)
    assert winner_to_export(one)[::2] == ("saf+easy", "saf+easy")
    assert winner_to_export(weighted)[:2] == (
        "predicted(1,1,0.06)",
        "not a rule but predicted(1,1,0.06), which the ladder chose in past weeks: why",
    )
    assert winner_to_export(one, rule="easy++").rule == "easy++"
    assert winner_to_export(one, rule="saf").rule == "saf+easy"
    for chosen, exponents in ((weighted, None), (usual, INDICES[0]), (other, INDICES[1])):
        winner = winner_to_export(chosen, seed=3)
        assert (winner.rule, winner.fallback) == (None, "saf+easy")
        np.testing.assert_array_equal(winner.exponents, exponents)
    assert winner_to_export(None).words == NOT_COMPARED


@pytest.mark.slow
def test_a_rule_or_what_won_a_comparison_is_exported(trained, tmp_path, capsys):
    folder, own = trained
    words = ("export", own / "policy", "--out", tmp_path / "bundle", "--replace")
    assert run(*words, "--rule", "saf+easy") == 0
    assert "the rule saf+easy, as requested" in capsys.readouterr().out
    assert load_queue(tmp_path / "bundle").setting["rule"] == "saf"
    assert run(*words, "--rule", "saf", "--seed", 0) == 2
    assert "a rule has no seed" in capsys.readouterr().err
    compared = (folder / "archive", folder / "twin", own / "policy", "--config", own / "order.toml")
    assert run("compare", *compared, "--out", tmp_path / "comparison") == 0
    assert "recommended for export (schedtwin export --comparison)" in capsys.readouterr().out
    assert run(*words, "--comparison", tmp_path / "comparison") == 0
    compared = load_comparison(tmp_path / "comparison")
    assert compared.archive["ladder"] == read_manifest(own / "policy").extra["ladder"]["order"]
    winner = winner_of(compared)
    contract = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert contract["trained_on"]["chosen"] == winner.words
    # The ladder's index, with its own exponents, and the rule that stands in for it
    assert winner.rule is None
    assert f"not a rule but {index_name(winner.exponents)}" in winner.words
    np.testing.assert_allclose(
        load_order(tmp_path / "bundle")[0].exponents, winner.exponents, rtol=1e-5, atol=1e-6
    )
    assert order_of_setting(contract["setting"] | contract["setting"]["fallback"]).name == winner.fallback
    made = read_manifest(tmp_path / "comparison").made_from
    for kind in ("comparison", "policy"):
        with writing(tmp_path / f"other {kind}", kind, made_from=made | {"policy": "f" * 64}):
            pass
    assert run(*words, "--comparison", tmp_path / "other comparison") == 2
    assert "judged another policy" in capsys.readouterr().err
    assert run("export", tmp_path / "other policy", "--out", tmp_path / "placing", "--rule", "saf") == 2
    assert "only the policy of a queue" in capsys.readouterr().err


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused(trained, tmp_path, capsys):
    folder, own = trained
    assert run("fit", folder / "archive", "--processors", 24, "--out", tmp_path / "wide") == 0
    words = (folder / "archive", tmp_path / "wide", own / "policy", "--out", tmp_path / "comparison")
    assert run("compare", *words) == 2
    assert "trained in another twin" in capsys.readouterr().err
    with pytest.raises(ProductError, match="of the problem 'ordering'"):
        load_encoding(own / "policy")
    with writing(tmp_path / "placing", "policy") as out:
        (out / "encoding.json").write_text("{}")
    with pytest.raises(ProductError, match="of the problem 'placement'"):
        load_queue_policy(tmp_path / "placing")


@pytest.mark.slow
def test_shifts_beyond_the_log_are_left_out_by_name(trained, tmp_path):
    folder, _ = trained
    jobs, twin = read_jobs(Archive(folder / "archive")), load_queue_twin(folder / "twin")
    (tmp_path / "empty.toml").write_text("")
    config = load_config(tmp_path / "empty.toml")
    weeks, notes = weeks_after(jobs, twin.anchor, config, twin.num_days)
    assert (weeks.num_test_days, weeks.shifts, notes) == (28, "0d,1d,7d,30d", [])
    weeks, notes = weeks_after(jobs, twin.anchor + 40, config, twin.num_days)
    assert (weeks.num_test_days, weeks.shifts) == (7, "0d,1d,7d")
    assert notes == ["the log ends too soon for the shifts 30d"]
    with pytest.raises(ConfigError, match="ends too soon"):
        weeks_after(jobs, twin.anchor + 60, config, twin.num_days)


def test_generated_days_are_an_archive_that_replays_to_its_own_waits(queue_made, tmp_path, capsys):
    folder, _ = queue_made
    for name in ("one", "two"):
        words = (folder / "twin", "--days", 14, "--seed", 3, "--policy", "sjf+easy", "--out", tmp_path / name)
        assert run("generate", *words) == 0
    one, two = (Archive(tmp_path / name) for name in ("one", "two"))
    assert one.read("requests").equals(two.read("requests"))
    jobs, twin = read_jobs(one), load_queue_twin(folder / "twin")
    assert 0.5 < len(jobs.arrival_s) / 14 / (len(twin.population.run_s) / twin.num_days) < 2.0
    assert one.days("requests")[0] == dt.date(1970, 1, 1) + dt.timedelta(days=twin.anchor)
    assert np.all(jobs.logged_start_s >= jobs.arrival_s)
    capsys.readouterr()
    assert run("generate", folder / "twin", "--first-day", "2001-09-20", "--out", tmp_path / "early") == 2
    assert "before the end of training" in capsys.readouterr().err
    assert run("generate", folder / "twin", "--days", 2_000_000, "--out", tmp_path / "long") == 2
    assert "2,000,000 days are some" in capsys.readouterr().err
    assert run("generate", folder / "twin", "--policy", "clone", "--out", tmp_path / "clone") == 2
    said = capsys.readouterr().err
    assert "no rule 'clone'" in said
    assert "logged_order; each also with +easy, for example fcfs+easy" in said


@pytest.mark.slow
def test_a_clone_is_trained_kept_and_judged_too(queue_made, tmp_path):
    folder, _ = queue_made
    (tmp_path / "order.toml").write_text(QUICK + WITH_CLONE)
    config = load_config(tmp_path / "order.toml")
    with writing(
        tmp_path / "policy",
        "policy",
        made_from={"twin": read_manifest(folder / "twin").content_hash},
        extra=(extra := {}),
    ) as out:
        extra |= build_queue_policy(
            out,
            folder / "twin",
            training_of(config),
            SilentProgress(),
            certification={},
            weeks=config.order.weeks,
        )
    assert load_queue_policy(tmp_path / "policy").learned.clone["params"]
    words = (folder / "archive", folder / "twin", tmp_path / "policy", "--config", tmp_path / "order.toml")
    assert run("compare", *words, "--out", tmp_path / "comparison") == 0
    comparison = load_comparison(tmp_path / "comparison")
    # Exported last
    assert [policy.name for policy in comparison.policies][-4:] == [
        "bc",
        "bc_greedy",
        "index",
        "ladder",
    ]
