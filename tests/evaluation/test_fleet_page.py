"""`schedtwin fleet refresh` where its page cannot be written: clusters are refreshed, the exit status tells of it."""

import json
from pathlib import Path

import pytest

from evaluation.commands.cli import main
from evaluation.pipeline.fleet import refreshing
from evaluation.pipeline.fleet.outcomes import read_outcome
from tests.evaluation.fleets import FAILED, KEPT, made_fleet, obeys


@pytest.mark.slow
@pytest.mark.parametrize("comes_to", [KEPT, FAILED])
def test_a_page_that_cannot_be_written_stops_no_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], comes_to: str
) -> None:
    (cluster,) = made_fleet(tmp_path, {"a": comes_to}, 'page = "taken"').clusters
    (tmp_path / "taken" / "by a folder").mkdir(parents=True)
    monkeypatch.setattr(refreshing.refresh_fleet, "__kwdefaults__", {"at_once": False, "step": obeys})
    words = ["fleet", "refresh", str(tmp_path / "fleet.toml"), "--no-progress", "--json"]
    assert main(words) == 2
    outcome, told = read_outcome(cluster.work), capsys.readouterr()
    assert outcome is not None
    assert outcome.result == comes_to
    assert "page or metrics cannot be written" in told.err
    assert json.loads(told.out)["exit_status"] == 2
    assert 'cluster="a"' in (tmp_path / "schedtwin.prom").read_text()
    (tmp_path / "taken" / "by a folder").rmdir()
    (tmp_path / "taken").rmdir()
    assert main(words) == 0  # nothing is due
