"""The daily job from end to end: day by day, against a bad policy and against itself, interrupted, and run again."""

import shutil
from pathlib import Path

import pytest

from evaluation.commands.cli import main
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import ExportDecision, Result
from evaluation.pipeline.refresh.job import refresh
from evaluation.problems.configuration import load_config
from evaluation.problems.placement.exporting import build_bundle
from logs_schema import Archive
from logs_schema.product import read_manifest, verify
from logs_schema.progress import SilentProgress
from offline_rl.runner import load_network
from tests.evaluation.refreshing import (
    THRESHOLDS,
    Killed,
    KilledAt,
    assert_fails_its_certificate,
    command,
    configured,
    created,
    nightly,
    policy_by_backlog,
)
from twin.placement.encoding import fit_encoding

HELD_OUT = RefreshConfig(judge_days=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days and a night, a loose and a strict configuration, a bad running policy."""
    made = tmp_path_factory.mktemp("refresh")
    nightly(made, 4)
    configured(made / "loose.toml", THRESHOLDS)
    configured(made / "strict.toml", THRESHOLDS | {"calibration": 1e-6, "wait_bias": 1e-6})
    archive = Archive(made / "simulated")
    encoding = fit_encoding(archive, archive.days("requests")[:1])
    policy_by_backlog(made / "bad", encoding, seeks_load=True)
    return made


def refreshed(
    folder: Path, running: str | None, progress: SilentProgress | None = None
) -> tuple[ExportDecision, dict[str, Path]]:
    return refresh(
        load_config(folder / "loose.toml"),
        folder,
        folder / "night",
        folder / "work",
        None if running is None else folder / running,
        HELD_OUT,
        progress or SilentProgress(),
    )


@pytest.mark.slow
def test_a_better_policy_is_exported_a_worse_one_is_not(folder: Path) -> None:
    for stage in ("append", "compare twin and log", "train in the twin", "fit a twin of the newest days"):
        with pytest.raises(Killed):
            refreshed(folder, "bad", KilledAt(stage))
        assert not (folder / "work" / "refresh" / "bundle").exists()
    decision, products = refreshed(folder, "bad")
    assert decision.result is Result.EXPORTED, decision.in_words()
    assert decision.history["requests_added"] == Archive(folder / "simulated").num_rows("requests") - Archive(
        folder / "work" / "archive" / "archive"
    ).num_rows("requests")
    assert decision.judgements[0].verdict == "better"
    bundle = products["bundle"] / "bundle"
    contract = load_network(bundle).contract
    assert contract.certificate == decision.certificate == read_manifest(products["certificate"]).content_hash
    assert (contract.trained_on["first_day"], contract.trained_on["last_day"]) == ("2024-01-02", "2024-01-03")
    assert read_manifest(bundle).content_hash == decision.new
    for path in products.values():
        verify(path)

    again, same = refreshed(folder, "bad")
    assert (again, created(same)) == (decision, created(products))
    shutil.copytree(bundle, folder / "deployed")  # what runs now is what was exported
    for running in ("deployed", None):
        again, same = refreshed(folder, running)
        assert (again, created(same)) == (decision, created(products)), running

    # No better than itself under another licence
    build_bundle(folder / "same", products["policy"], licence="MIT")
    kept, products = refreshed(folder, "same")
    assert kept.result is Result.KEPT, kept.in_words()
    assert kept.new == decision.new
    assert "bundle" not in products
    assert read_manifest(bundle).content_hash == decision.new


@pytest.mark.slow
def test_the_command_says_what_it_decided(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(folder, "strict")
    assert_fails_its_certificate([*words, "--judge-days", "1"], capsys)
    assert not (folder / "strict" / "refresh" / "policy").exists()
    text = (folder / "strict" / "refresh" / "decision" / "decision.txt").read_text()
    assert text.startswith("certificate failed: ")
    assert "2,4" in text
    assert main([*words, "--judge-days", "9", "--no-progress"]) == 2
    assert "are to be held out" in capsys.readouterr().err
