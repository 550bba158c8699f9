"""The problem behind the commands: simulate, fit, certify, train, reproduce; and what is refused, in words."""

import datetime as dt
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation import UnitValues, compare, shifted_days
from evaluation.certify.config import CertifyConfig
from evaluation.commands.cli import main
from evaluation.commands.output import as_text
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.unfinished import NOTHING_KEPT
from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.pipeline.run import archive_step
from evaluation.problems.autoscaling import comparing
from evaluation.problems.autoscaling import kit as scaling_kit
from evaluation.problems.autoscaling.kit import AUTOSCALING_KIT, train_days_of
from evaluation.problems.autoscaling.user_autoscalers import bundled_autoscaler, user_autoscalers
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.problems.kit import ExportOptions, ProblemOptions
from evaluation.problems.orchestration import kit as slots_kit
from evaluation.reproduction.drpc import DrpcConfig, table, traces_of
from evaluation.reproduction.showing_drpc import as_table
from evaluation.simulator.applications.load import LoadConfig, made_rates, read_series
from evaluation.simulator.applications.log import simulate_application
from evaluation.simulator.applications.presets import application
from logs_schema import Archive
from logs_schema.errors import ConfigError, FormatError
from logs_schema.product import writing
from logs_schema.progress import SilentProgress
from offline_rl.autoscaling.config import ScaleConfig
from offline_rl.recipes.scaling_task import setting_of
from offline_rl.recipes.scaling_training import policy_of
from offline_rl.runner.scaling import FORMS, load_scaling
from twin import fit
from twin.autoscaling.config import AutoscalingConfig


def test_load_has_its_mean_its_day_and_its_drift():
    app = application("boutique")
    rates = made_rates(app, 14, 300.0, 0, config=LoadConfig(bursts_per_day=0.0))
    assert rates.shape == (14 * 288, len(app.users))
    assert rates.sum(axis=1).mean() == pytest.approx(app.rate_per_s, rel=0.15)
    by_hour = rates.sum(axis=1).reshape(14, 24, -1).mean(axis=(0, 2))
    assert by_hour.max() > 1.8 * by_hour.min()
    later = made_rates(app, 1, 300.0, 0, first_day=30)
    share = (
        rates[:288].mean(axis=0) / rates[:288].sum(axis=1).mean(),
        later.mean(axis=0) / later.sum(axis=1).mean(),
    )
    checkout = [user.name for user in app.users].index("checkout")
    assert share[1][checkout] > 1.4 * share[0][checkout]
    np.testing.assert_array_equal(rates, made_rates(app, 14, 300.0, 0, config=LoadConfig(bursts_per_day=0.0)))


def test_a_real_series_is_laid_under_the_load(tmp_path):
    (tmp_path / "rates.txt").write_text("time;rate\n0;10\n1;30;\n")
    series = read_series(tmp_path / "rates.txt")
    np.testing.assert_array_equal(series, [10.0, 30.0])
    rates = made_rates(application("chain"), 1, 3600.0, 0, series=series).sum(axis=1)
    assert rates[1] / rates[0] == pytest.approx(3.0, rel=0.01)
    (tmp_path / "rates.txt").write_text("1\n2\nthree\n")
    with pytest.raises(FormatError, match="no series of request rates") as error:
        read_series(tmp_path / "rates.txt")
    (tmp_path / "rates.txt").write_bytes(b"1\n\xe5\xff\n")
    with pytest.raises(FormatError, match="no series of request rates"):
        read_series(tmp_path / "rates.txt")
    assert "row 3" in str(error.value)
    (tmp_path / "rates.txt").write_text("1\n-3\n2\n")
    with pytest.raises(FormatError, match="row 2"):
        read_series(tmp_path / "rates.txt")


@pytest.mark.parametrize(
    "wrong", [("--interval-s", "0"), ("--first-day", "9999-12-31"), ("--days", "99999999")]
)
def test_days_that_no_application_has_are_refused(tmp_path, capsys, wrong):
    assert main(["simulate", "--preset", "chain", "--out", str(tmp_path / "log"), *wrong]) == 2
    assert "allowed:" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


@pytest.mark.slow  # simulates a day twice
def test_a_job_writes_the_log_of_an_application_as_the_command_does(tmp_path):
    archive_step(LogConfig(preset="chain", days=1, seed=3), tmp_path).build(tmp_path, {}, SilentProgress())
    simulate_application(
        application("chain"), 1, "operator", 3, tmp_path / "log", first_day=dt.date(2024, 1, 1)
    )
    assert Archive(tmp_path / "archive").content_hash == Archive(tmp_path / "log").content_hash


@pytest.mark.parametrize(
    ("wrong", "allowed"), [({"preset": "chains"}, "of applications: chain"), ({"world_seed": 1}, "0")]
)
def test_a_job_refuses_an_application_that_there_is_not(tmp_path, wrong, allowed):
    with pytest.raises(ConfigError) as refused:
        archive_step(LogConfig(**{"preset": "chain"} | wrong), tmp_path).build(tmp_path, {}, SilentProgress())
    assert allowed in refused.value.allowed


def test_traces_are_paired_by_seed_and_shift():
    config = DrpcConfig(preset="chain", log_days=2, minutes=60, shifts=(0, 30), num_seeds=2)
    traces = traces_of(config)
    assert len(traces.starts) == 4
    assert traces.rates.shape == (4 * 2880, 2)
    assert (traces.starts % 2880)[0] == (traces.starts % 2880)[1]  # a seed's shifts at one time of day
    assert traces.starts[0] + traces.length <= 2880


def test_the_table_has_a_row_for_every_autoscaler_and_shift():
    config = DrpcConfig(preset="chain", shifts=(0, 30), num_seeds=2)
    found = {name: np.array([1.0, 2.0, 3.0, 4.0]).tolist() for name in (
        "mean_response_s", "p95_response_s", "p99_response_s", "p9999_response_s", "failures", "objective_kept",
        "cpu_core_hours", "reward")}  # fmt: skip
    played = {"chosen": found, "frontier": [{"setting": {"target": 0.5}} | found], "setting": {}}
    rival = {"chosen": found | {"reward": [0.5, 2.0, 2.0, 4.5]}, "frontier": [], "setting": {}}
    made = table(config, {"hpa": played, "lookahead": rival})
    assert [(row["autoscaler"], row["shift_days"], row["p99_response_s"]) for row in made["rows"]] == [
        ("hpa", 0, 2.0), ("hpa", 30, 3.0), ("lookahead", 0, 2.0), ("lookahead", 30, 3.0),
    ]  # fmt: skip
    assert made["rows"][0]["p99_response_s_low"] < 2.0 < made["rows"][0]["p99_response_s_high"]
    assert made["frontier"][0]["cpu_core_hours"] == 2.5
    paired = [(row["reward_over_lookahead"], row["reward_over_lookahead_low"]) for row in made["rows"][:2]]
    half = 0.25 * 12.706204736  # Student, one degree of freedom
    assert paired == [(0.75, pytest.approx(0.75 - half)), (-0.25, pytest.approx(-0.25 - half))]
    assert "reward_over_lookahead" not in made["rows"][2]
    assert "over lookahead" in as_text(as_table(made))


class Days:
    """An archive that knows its days alone."""

    def __init__(self, number):
        self.present = [dt.date(2024, 1, 1) + dt.timedelta(days=index) for index in range(number)]

    def days(self, _table):
        return self.present


@pytest.mark.parametrize(("number", "kept"), [(1, 1), (2, 1), (7, 6), (10, 8)])
def test_the_last_fifth_of_a_log_is_held_out(number, kept):
    assert len(train_days_of(Days(number), DaysConfig())) == kept


def test_days_that_are_asked_for_are_taken():
    days = train_days_of(Days(10), DaysConfig(last_day=dt.date(2024, 1, 5), num_days=2))
    assert days == [dt.date(2024, 1, 4), dt.date(2024, 1, 5)]
    days = train_days_of(Days(10), DaysConfig(num_days=2))  # and the last fifth is held out
    assert days == [dt.date(2024, 1, 7), dt.date(2024, 1, 8)]
    assert train_days_of(Days(10), DaysConfig(first_day=dt.date(2024, 1, 9)))[-1] == dt.date(2024, 1, 10)
    days = train_days_of(Days(10), DaysConfig(first_day=dt.date(2024, 1, 3), num_days=2))
    assert days == [dt.date(2024, 1, 3), dt.date(2024, 1, 4)]
    with pytest.raises(ConfigError, match="no samples from"):
        train_days_of(Days(10), DaysConfig(first_day=dt.date(2025, 1, 1)))


def test_what_is_not_there_says_so(tmp_path):
    own = user_autoscalers({"mine": None, "other": lambda key, state: state.grants}, (), ["web"], policy_of)
    assert set(own.ready) == {"other"}
    assert "policy 'mine' is no function" in str(own.refused["mine"])
    with writing(tmp_path / "policy", "policy", extra={"tried": {"hpa": {"reward": 0.0}}, "seeds": [0]}):
        pass
    with pytest.raises(ConfigError, match="no such autoscaler to export"):
        AUTOSCALING_KIT.export(tmp_path / "out", tmp_path / "policy", ExportOptions())
    with pytest.raises(ConfigError, match="only a queue has a pool"):
        AUTOSCALING_KIT.configured(RunConfig(), ProblemOptions(pool="cpu"))
    with pytest.raises(ConfigError, match="slo_s"):
        ScaleConfig(slo_s=-1.0)
    log = SimpleNamespace(gateway={"response_p95_s": np.full(3, np.nan)})
    with pytest.raises(ConfigError, match="no objective is named"):
        setting_of(ScaleConfig(), None, log)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "drpc", "--preset", "zoo"], "no application 'zoo'"),
        (["reproduce", "drpc", "--minutes", "5"], "cannot be"),
        (["reproduce", "drpc", "--updates", "-5"], "cannot be"),
        (["reproduce", "drpc", "--autoscalers", "hpa,zoo"], "there is no autoscaler zoo"),
        (["reproduce", "kmps", "--quick", "--days=-1"], "days -1"),
        (["reproduce", "kais", "--quick", "--learned", "zoo"], "no learner 'zoo'"),
        (
            ["simulate", "--preset", "zoo", "--out", "OUT"],
            "kais, kmps, large; of applications: chain, boutique",
        ),
        (["simulate", "--preset", "chain", "--behaviour", "mix", "--out", "OUT"], "under 'mix'"),
        (["simulate", "--preset", "chain", "--pattern", "logged", "--out", "OUT"], "series of request rates"),
        (
            ["simulate", "--preset", "chain", "--slots", "--explored", "0", "--out", "OUT"],
            "take --slots, --explored",
        ),
        (["simulate", "--preset", "kmps", "--rates", "FILE", "--out", "OUT"], "does not take --rates"),
        (["simulate", "--dispatch", "random", "--out", "OUT"], "without --slots does not take --dispatch"),
        (["simulate", "--slots", "--behaviour", "mix", "--out", "OUT"], "by slots does not take --behaviour"),
    ],
)
def test_wrong_arguments_are_refused_in_words(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_log_that_lacks_tables_is_refused_with_what_it_does_support(tmp_path, capsys):
    line = "2024-01-01T00:00:00Z,30,cart,1,1.0\n"
    (tmp_path / "deployment_samples.csv").write_text(
        f"time,interval_s,deployment,num_replicas,cpu_cores\n{line}"
    )
    log = str(tmp_path / "log")
    assert main(["import", "native", str(tmp_path / "deployment_samples.csv"), "--out", log]) == 0
    assert main(["fit", log, "--problem", "orchestration", "--out", str(tmp_path / "twin")]) == 2
    told = capsys.readouterr().err
    assert "'orchestration': table requests is empty; table replicas is empty" in told
    assert "the log supports autoscaling" in told


@pytest.mark.parametrize(
    ("kit", "load"), [(scaling_kit, "load_application_twin"), (slots_kit, "load_fitted")]
)
def test_no_twin_is_certified_on_its_own_training_days(monkeypatch, tmp_path, kit, load):
    with writing(tmp_path / "twin", "twin", extra={"train_days": ["2024-01-01", "2024-01-02"]}):
        pass
    monkeypatch.setattr(kit, load, lambda _twin: None)
    certifier = kit.certifier(tmp_path / "twin", None)
    held_out = [dt.date(2024, 1, 2), dt.date(2024, 1, 3)]
    with pytest.raises(ConfigError, match="overlap the training window"):
        certifier.certify(Days(4), held_out, CertifyConfig(), SilentProgress(), NOTHING_KEPT)


def test_seeds_of_training_follow_the_seed_of_the_command():
    usual = AUTOSCALING_KIT.train(RunConfig()).settings["seeds"]
    other = AUTOSCALING_KIT.train(RunConfig(seed=7)).settings["seeds"]
    assert len(usual) == len(other)
    assert not set(usual) & set(other)


def test_the_truth_of_a_logged_day_has_the_load_of_its_log(monkeypatch):
    app, told = application("chain"), []
    monkeypatch.setattr(comparing, "application_response", lambda _a, _c, rates, *_, **__: told.append(rates))
    asked = np.linspace(100.0, 200.0, 2880)
    asked[5] = np.nan
    log = SimpleNamespace(gateway={"request_rate_per_s": asked}, time_s=np.zeros(1), interval_s=30.0)
    truth = {"preset": "chain", "interval_s": 30.0, "seed": 0, "first_day": "2024-01-01"}
    task = SimpleNamespace(scaling=AutoscalingConfig(), limits=None)
    names = [service.name for service in app.services]
    for known in (log, None):
        comparing._true_day(truth, dt.date(2024, 1, 3), 1, task, names, known).respond(240, None)
    asked[5] = asked[4]
    np.testing.assert_allclose(told[0].sum(axis=1), asked, rtol=1e-5)
    np.testing.assert_allclose(told[0].sum(axis=1)[0] * told[1][0] / told[1][0].sum(), told[0][0], rtol=1e-5)
    assert abs(told[1].sum(axis=1) - asked).max() > 1.0  # of a day without a log: one that is like it


@pytest.mark.slow
def test_from_a_simulated_log_to_a_certified_twin_and_a_table(tmp_path, capsys):
    log, twin, certificate = (str(tmp_path / name) for name in ("log", "twin", "certificate"))
    assert main(["simulate", "--preset", "chain", "--days", "4", "--out", log, "--no-progress"]) == 0
    assert main(["fit", log, "--out", twin, "--no-progress"]) == 0
    assert "5 deployments learned" in capsys.readouterr().out
    main(["certify", twin, log, "--out", certificate, "--json", "--no-progress"])
    made = json.loads((tmp_path / "twin.certificate" / "certificate.json").read_text())
    mean, quantile = [line["value"]["value"] for line in made["lines"] if line["section"] == "answers"]
    assert any("over 3 held-out days, 2 of them days of training" in note for note in made["notes"])
    assert abs(mean) < 0.1
    assert abs(quantile) < 0.25  # the operator grants cores on the held-out day that no training day had...
    beyond = [line["value"]["value"] for line in made["lines"] if line["section"] == "coverage"]
    assert beyond == [1.0]  # ...and the certificate says so
    work = str(tmp_path / "work")
    arguments = [
        "--quick", "--minutes", "30", "--seeds", "2", "--autoscalers", "hpa,lookahead,ppo", "--updates", "2",
        "--out", work,
    ]  # fmt: skip
    capsys.readouterr()
    assert main(["reproduce", "drpc", *arguments, "--json", "--no-progress"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["autoscaler"] for row in rows} == {"hpa", "lookahead", "ppo"}
    first = {row["autoscaler"]: row for row in rows if row["shift_days"] == 0}
    assert first["lookahead"]["p95_response_s"] < first["hpa"]["p95_response_s"]


@pytest.mark.slow
def test_what_is_trained_is_compared_on_later_days_and_exported(tmp_path, capsys):
    log, twin, policy, comparison, bundle = (str(tmp_path / name) for name in "ltpcb")
    (tmp_path / "tiny.toml").write_text(
        "[scale]\nupdates = 2\ntrial_episodes = 2\ntrial_steps = 60\n[train]\nseeds = [0]\n"
    )
    tiny = ["--config", str(tmp_path / "tiny.toml"), "--no-progress"]
    assert main(["simulate", "--preset", "chain", "--days", "3", "--out", log, "--no-progress"]) == 0
    assert main(["fit", log, "--out", twin, "--no-progress"]) == 0
    assert main(["train", twin, "--out", policy, "--force", *tiny]) == 0
    capsys.readouterr()
    arguments = ["compare", log, twin, policy, "--shifts", "0d,1d", "--out", comparison, "--json", *tiny]
    assert main(arguments) == 0
    found = Comparison.from_json(json.loads(capsys.readouterr().out))
    judged = {(cell.judge, cell.shift_days) for cell in found.cells}
    assert judged == {("twin", 0), ("truth", 0), ("truth", 1)}
    logged = [cell.policy for cell in found.cells if cell.policy == "logged"]
    assert logged
    assert {
        "hpa_calibrated",
        "hpa_sized",
        "lookahead",
        "teacher",
        "teacher_lookahead",
        "students_lookahead",
    } <= {one.name for one in found.policies}
    kept = found.cell("truth", 0, "lookahead", "objective_kept")
    assert 0.0 <= kept.low <= kept.value <= 1.0
    assert main(["export", policy, "--policy", "students_lookahead", "--out", bundle]) == 0
    names = load_scaling(bundle).setting.names
    assert names == tuple(sorted(application("chain").deployments))
    with pytest.raises(OtherSystemError, match="for other deployments"):
        bundled_autoscaler(tmp_path / "b", names[::-1], policy_of)
    mine = "tests.autoscaling.test_commands"
    rule = str(tmp_path / "rule")
    assert main(["export", policy, "--policy", "hpa_sized", "--out", rule]) == 0
    for own in (f"old={bundle}", f"ruled={rule}", f"still={mine}:still", f"wrong={mine}:wrong"):
        arguments += ["--policy", own]
    arguments += ["--judge", f"start={mine}:cores_at_start"]
    capsys.readouterr()
    assert main([*arguments, "--replace"]) == 2  # one of them is refused, and the others are kept
    found = Comparison.from_json(json.loads(capsys.readouterr().out))
    assert set(found.refused) == {"wrong"}
    assert "returns a tuple of arrays" in found.refused["wrong"]
    for metric in ("reward", "cpu_cores"):  # the bundle decides as what it was made from
        for one, other in (("old", "students_lookahead"), ("ruled", "hpa_sized")):
            same = [found.cell("twin", 0, name, metric).value for name in (one, other)]
            assert same[0] == pytest.approx(same[1], rel=1e-4)
    assert found.cell("twin", 0, "still", "cpu_cores").value > 0.0
    cores = [found.cell("start", 0, name, "cpu_cores") for name in ("still", "hpa", "wrong")]
    assert cores[0].value > 0.0
    assert cores[1].low is not None
    assert cores[2] is None
    split = shifted_days(Archive(log), "0d", num_days=1)  # from Python: of a log that holds no requests
    found = compare(
        {"still": still, "wrong": wrong}, fit("autoscaling", split.train), split.test,
        judges={"start": cores_at_start}, intervals=IntervalConfig(num_replicates=200),
    ).comparison  # fmt: skip
    assert set(found.refused) == {"wrong"}
    assert {cell.judge for cell in found.cells if cell.policy == "still"} == {"twin", "truth", "start"}


def still(_key, state):
    return state.grants


def cores_at_start(autoscaler, days):
    """Cores granted that the log of the day had at the hours, by an autoscaler that has seen nothing."""
    log = days.history()
    assert callable(autoscaler.decide)
    return UnitValues({"cpu_cores": log.columns["cpu_cores"].sum(axis=1)[:: len(log.time_s) // 12][:12]})


def wrong(_key, state):
    return tuple(state.grants)


@pytest.mark.slow
def test_the_whole_job_and_its_daily_form_on_samples_of_deployments(tmp_path, capsys):
    made = str(tmp_path / "log")
    assert main(["simulate", "--preset", "chain", "--days", "4", "--out", made, "--no-progress"]) == 0
    log = Archive(tmp_path / "log")
    days = log.days("deployment_samples")
    for name, kept in (("old", days[:3]), ("new", days[3:])):
        pq.write_table(log.read("deployment_samples", days=kept), tmp_path / f"{name}.parquet")
    (tmp_path / "job.toml").write_text(
        '[log]\nformat = "native"\npaths = ["old.parquet"]\n[shifts]\nshifts = "0d"\n[train]\nseeds = [0]\n'
        "[scale]\nupdates = 2\ntrial_episodes = 2\ntrial_steps = 60\n"
    )
    work = ["--no-progress", "--json"]
    capsys.readouterr()
    assert main(["run", str(tmp_path / "job.toml"), "--force", "--out", str(tmp_path / "work"), *work]) == 0
    told = json.loads(capsys.readouterr().out)
    assert load_scaling(f"{told['bundle']}/bundle").setting.form in FORMS
    shutil.copytree(tmp_path / "work", tmp_path / "idle")
    words = ["refresh", str(tmp_path / "job.toml"), "--log", str(tmp_path / "new.parquet"), "--when-needed"]
    assert main([*words, "--work", str(tmp_path / "idle"), "--reward-below", "-1000000", *work]) == 10
    told = json.loads(capsys.readouterr().out)
    assert told["reason"].startswith("training is not due, so nothing was fitted: mean reward")
    assert not (tmp_path / "idle" / "refresh" / "twin").exists()
    words += ["--reward-below", "0", "--force"]
    assert main([*words, "--work", str(tmp_path / "work"), *work]) in (0, 10)
    told = json.loads(capsys.readouterr().out)
    assert any(note.startswith("training is due: mean reward") for note in told["notes"])
    assert told["history"]["requests_added"] == log.num_rows("deployment_samples") // 4
    assert told["judged_days"] == [days[3].isoformat()]
    assert (told["metric"], told["judgements"][0]["judge"]) == ("reward", "twin")
