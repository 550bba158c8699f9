"""The tables of CoRaiS: one command, all solvers on the same instances, resumed where it was."""

import json

import pytest

from evaluation.cli import main
from evaluation.reproduction.corais import TABLE_3, CoraisConfig, Scale, solve, table
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress


def test_the_command_writes_its_table(tmp_path, capsys, monkeypatch):
    from evaluation.reproduction import corais

    tiny = CoraisConfig((Scale(4, 2, 6),), num_instances=2, exact_s=1.0, search_s=0.01)
    monkeypatch.setattr(corais, "quick", lambda config: tiny)
    asked = ["reproduce", "corais", "--quick", "--json", "--no-progress", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["solver"]: row for row in found["rows"]}
    wanted = {
        "local",
        "predicted",
        "random_1000",
        "insertion",
        "insertion_local_search",
        "lp_rounding",
        "exact",
    }
    assert wanted <= rows.keys()
    for row in found["rows"]:
        assert row["gap_to_bound"] >= row["gap_to_best"] >= 1.0
        assert row["seconds"] > 0.0
    assert rows["exact"]["gap_to_best"] == pytest.approx(1.0, abs=1e-3)
    assert rows["insertion_local_search"]["gap_to_best"] <= rows["insertion"]["gap_to_best"]
    assert json.loads((tmp_path / "out" / "corais.json").read_text()) == found
    assert main(asked) == 0  # nothing is solved again: the same seconds
    assert json.loads(capsys.readouterr().out) == found


def test_large_scales_are_asked_of_what_can_solve_them(tmp_path):
    config = CoraisConfig((Scale(80, 70, 900),), num_instances=1, exact_s=1.0, search_s=0.01)
    rows = table(config, solve(config, tmp_path, SilentProgress()))["rows"]
    assert {"exact", "lp_rounding"}.isdisjoint(row["solver"] for row in rows)
    assert "insertion" in {row["solver"] for row in rows}


def test_every_scale_has_its_share_of_instances():
    config = CoraisConfig()
    assert [config.instances_of(scale) for scale in (config.scales[0], config.scales[4], config.scales[-1])] == [
        1000, 100, 10,
    ]  # fmt: skip
    assert CoraisConfig(TABLE_3, num_instances=1).instances_of(TABLE_3[0]) == 1


@pytest.mark.parametrize("wrong", [{"num_instances": 0}, {"exact_s": 0.0}, {"search_s": -1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match="reproduce corais"):
        CoraisConfig(**wrong)
