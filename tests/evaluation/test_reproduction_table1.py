"""Table 1: the same measures for everybody, figures over the floor of their seed, failures told, kills survived."""

import json

import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.comparison.seeds import over_seeds
from evaluation.reproduction import table1
from evaluation.reproduction.populations import FLOOR, GeneratedAgents, draw, measure, ways_of
from evaluation.reproduction.showing_table1 import as_table
from evaluation.reproduction.table1 import AUC, COLUMN, PAIRS, MethodDistances, Table1Config, compare, table
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from tests.twin.population.toys import agents
from twin.population import PopulationError


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two days of twelve agents: enough to measure, too few to learn from."""
    path = tmp_path_factory.mktemp("table1") / "tiny"
    simulate("small", 2, "mix", 0, path)
    return path


@pytest.mark.slow
def test_independent_columns_pass_alone_and_are_found_out_in_pairs():
    drawn = GeneratedAgents(agents(1500, 0), (agents(800, 1),), agents(800, 2), "agent and day", 0)
    ways = ways_of(("bootstrap", "marginals"))
    floor, again, apart = (measure(ways[name], 0, drawn) for name in (FLOOR, "bootstrap", "marginals"))
    for name in ("service", "site", "scenario", "input_mib"):
        assert apart["columns"][name] < floor["columns"][name] + 0.02
    assert apart["pairs"] > 5 * floor["pairs"] > 0
    assert again["pairs"] < 2 * floor["pairs"]
    assert apart["auc"] > 0.75 > 0.6 > max(floor["auc"], again["auc"])


def test_figures_of_older_code_are_made_again(log, tmp_path, monkeypatch):
    config, seen = Table1Config((log,), methods=("marginals",), num_seeds=1), []

    def made(steps, *_):
        seen.append([step.code_version for step in steps])
        raise KeyboardInterrupt

    for code in (1000, 1001):
        monkeypatch.setattr(table1, "TWIN_CODE", code)
        monkeypatch.setattr(table1, "run_job", made)
        with pytest.raises(KeyboardInterrupt):
            compare(config, tmp_path, SilentProgress())
    assert seen == [[1000, 1000], [1001, 1001]]


def test_a_killed_table_goes_on_where_it_was(log, tmp_path, monkeypatch):
    config = Table1Config((log,), methods=("marginals",), num_seeds=2)
    made, real = [], measure

    def counted(generate, seed, drawn, on_evaluation):
        if len(made) == 2:
            made.append("killed")
            raise KeyboardInterrupt
        made.append(seed)
        return real(generate, seed, drawn, on_evaluation)

    monkeypatch.setattr(table1, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        compare(config, tmp_path, SilentProgress())
    (found,) = compare(config, tmp_path, SilentProgress())
    assert made == [0, 1, "killed", 0, 1]  # both floors stand; the fit that was killed begins again
    assert set(found.figures) == {(FLOOR, 0), (FLOOR, 1), ("marginals", 0), ("marginals", 1)}
    assert compare(config, tmp_path, SilentProgress())[0].figures == found.figures
    assert len(made) == 5
    told = table(config, [found])
    fit = next(fit for fit in told["fits"] if fit["method"] == "marginals")
    assert "too few to learn" in fit["failed"][0]  # told, and no row invented
    assert {row["method"] for row in told["rows"]} == {FLOOR}
    json.dumps(told, allow_nan=False)
    assert as_table(told)


def test_figures_stand_over_the_floor_of_their_own_seed():
    def of(*values):
        return dict(zip(("columns", "pairs", "auc"), ({"service": values[0]}, *values[1:]), strict=True)) | {
            "fit_cpu_s": 1.0,
            "warnings": [],
            "rows": {},
        }

    figures = {
        (FLOOR, 0): of(0.01, 0.02, 0.48),
        (FLOOR, 1): of(0.01, 0.02, 0.52),
        (FLOOR, 2): of(0.01, 0.02, 0.9),
        ("chain", 0): of(0.03, 0.02, 0.58),
        ("chain", 1): of(0.05, 0.02, 0.62),
        ("chain", 2): {"failed": "astray"},
    }
    found = table(Table1Config(methods=("chain",), num_seeds=3), [MethodDistances("log", figures)])
    rows = {row["measure"]: row for row in found["rows"] if row["method"] == "chain"}
    assert {row["num_seeds"] for row in rows.values()} == {2}
    assert rows[COLUMN]["column"] == "service"
    assert rows[COLUMN]["over_floor"] == pytest.approx(0.03)
    assert rows[PAIRS]["over_floor"] == 0.0
    assert rows[AUC]["over_floor"] == pytest.approx(0.10)
    assert rows[AUC]["over_floor_high"] == pytest.approx(0.10)  # the seeds' chance is in the floor as well
    assert rows[AUC]["value_high"] > 0.7


def test_means_over_seeds_have_students_interval():
    found = over_seeds([1.0, 2.0, 3.0])
    assert (found.value, found.high - 2.0) == pytest.approx((2.0, 4.302653 / np.sqrt(3)))
    assert over_seeds([1.0]).low is None
    cut = over_seeds([0.0, 0.0, 0.9], within=(0.0, 1.0))  # .3 and more than .7 on either side
    assert (cut.low, cut.value, cut.high) == (0.0, pytest.approx(0.3), 1.0)
    assert over_seeds([]).value is over_seeds([1.0, np.nan]).value is None


def test_impossible_tables_are_refused(log, tmp_path):
    with pytest.raises(ConfigError, match="several archives are called tiny"):
        Table1Config((log, tmp_path / "tiny"))
    with pytest.raises(ConfigError, match="kind = 'nobody'"):
        Table1Config(methods=("nobody",))
    with pytest.raises(ConfigError, match="generates no agents"):
        Table1Config(methods=("none",))
    with pytest.raises(ConfigError, match="0 seeds"):
        Table1Config(num_seeds=0)
    assert main(["reproduce", "table1", str(tmp_path / "nothing")]) == 2


@pytest.mark.slow
def test_the_whole_table_from_nothing(tmp_path, capsys):
    words = ["reproduce", "table1", "--preset", "small", "--days", "24", "--rounds", "10", "--seeds", "2"]
    words += ["--methods", "chain,wgan_gp,mixture"]
    assert main([*words, "--json", "--no-progress", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "table1.json").read_text()) == found
    methods = {fit["method"]: fit for fit in found["fits"]}
    assert methods.keys() == {FLOOR, "chain", "wgan_gp", "mixture"}
    for row in found["rows"]:
        assert row["value_low"] <= row["value"] <= row["value_high"]
        assert row["measure"] != AUC or 0.0 <= row["value"] <= 1.0
    assert not any(fit["failed"] for fit in found["fits"])


def test_agents_of_unknown_scenarios_are_left_out(log):
    found = draw(Archive(log), max_rows=1000, rows_an_agent=8)
    assert {found.real.num_rows} == {other.num_rows for other in found.others}
    assert set(found.real.labels["scenario"]) <= set(found.train.labels["scenario"])
    with pytest.raises(PopulationError, match="too few"):
        measure(ways_of(("bootstrap",))["bootstrap"], 0, found)
