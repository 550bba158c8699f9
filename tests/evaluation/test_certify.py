"""A certificate from end to end: what it says of a tiny twin, what it refuses, and what training makes of it."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evaluation.certify.certificate import EXIT_STATUS
from evaluation.certify.config import CertifyConfig
from evaluation.certify.held_out import unseen_labels
from evaluation.certify.lines import Verdict
from evaluation.certify.logged_days import counted_once, days_windows
from evaluation.certify.persistence import (
    certification_folder,
    certification_in,
    folder_beside,
    load_certificate,
    refuse_uncertified,
)
from evaluation.commands.cli import main
from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.certificates import build_certificate
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.generated_log import generate_log
from evaluation.problems.placement.spreading import spread_in_words
from evaluation.problems.placement.steps import build_twin
from evaluation.simulator.logs import simulate
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import SilentProgress
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import load_encoding
from twin.population import PopulationConfig

DAYS = DaysConfig(last_day=dt.date(2024, 1, 1), num_days=1, num_steps=64)
ANSWERS = AnswerConfig(num_members=2, hidden=(16,), num_steps=60, evaluate_every=20, learning_rate=5e-4)
WORKLOAD = PopulationConfig()  # a network, but there are too few rows for it
QUICK = CertifyConfig(
    max_days=1, enough_rows=1, num_steps=128, max_rows=500, num_replicates=200, rankings=False
)

pytestmark = pytest.mark.slow  # fits and plays twins; the parts of a certificate are tested quickly elsewhere
TOML = """
[certify]
max_days = 1
enough_rows = 1
num_steps = 128
max_rows = 500
num_replicates = 200
rankings = false
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An archive of four days, a twin of the first, and settings."""
    folder = tmp_path_factory.mktemp("certify")
    simulate("small", 4, "mix", 0, folder / "archive", progress=lambda *_, **__: None)
    with writing(folder / "twin", "twin", extra=(extra := {})) as out:
        config = RunConfig(days=DAYS, twin=ANSWERS, population=WORKLOAD)
        extra |= build_twin(out, folder / "archive", config, SilentProgress())
    (folder / "quick.toml").write_text(TOML)
    return folder


@pytest.fixture(scope="module")
def status(made):
    """Exit status of certifying it."""
    return certify(made, "--out", str(made / "report.html"))


def certify(folder, *options):
    return main([
        "certify", str(folder / "twin"), str(folder / "archive"), "--config", str(folder / "quick.toml"),
        "--no-progress", *options,
    ])  # fmt: skip


def test_the_exit_status_is_the_verdict_and_the_page_is_written(made, status):
    certificate = load_certificate(folder_beside(made / "twin"))
    assert status == EXIT_STATUS[certificate.verdict]
    assert certificate.twin == read_manifest(made / "twin").content_hash
    assert certificate.days == ("2024-01-02",)
    assert certificate.partners == ("2024-01-03",)
    assert (made / "report.html").read_text() == (folder_beside(made / "twin") / "report.html").read_text()
    sections = {line.section for line in certificate.lines}
    assert len(sections) == 12
    for line in certificate.lines:
        silent = line.verdict is Verdict.NOT_APPLICABLE
        assert silent == (line.value.value is None), line.name
        assert not silent or line.reason


def test_a_twin_of_sixty_gradient_steps_is_not_believed(made, status):
    told = {line.name: line for line in load_certificate(folder_beside(made / "twin")).lines}
    assert told["Kolmogorov-Smirnov distance of wait"].verdict is Verdict.FAIL
    assert told["two-sample classifier"].value.value is None or status == 3
    floor = told["KL of run time"].floor
    assert 0.0 < floor.value < 0.05  # another day of the same world, never the day itself


def test_the_fallback_stands_in_the_certificate(made, status):
    certificate = load_certificate(folder_beside(made / "twin"))
    assert any("too few to train chain" in note for note in certificate.notes)
    assert any(
        spread_in_words(read_manifest(made / "twin").extra["spread"]) in note for note in certificate.notes
    )
    told = {line.name: line for line in certificate.lines if line.section == "workload model"}
    assert told["rate of arrivals"].value.value is not None
    assert "fewer than" in told["service"].reason  # one day of this world has 24 agents


def test_the_same_certificate_twice_and_what_is_kept_elsewhere(made, status, tmp_path, capsys):
    capsys.readouterr()
    assert certify(made, "--keep", str(tmp_path / "again")) == status
    assert (
        f"schedtwin train finds it there with --certificate {tmp_path / 'again'}" in capsys.readouterr().out
    )
    first, again = (load_certificate(path) for path in (folder_beside(made / "twin"), tmp_path / "again"))
    assert first.to_json() == again.to_json()
    folder_beside(made / "twin").rename(tmp_path / "aside")
    command = ["train", str(made / "twin"), "--out", str(made / "policy"), "--no-progress"]
    for more, told in (
        ([], "has no certificate"),
        (["--certificate", str(tmp_path / "again")], "failed its"),
    ):
        assert main([*command, *more]) == 2
        assert told in capsys.readouterr().err
    (tmp_path / "aside").rename(folder_beside(made / "twin"))


def test_every_request_counts_once(made, monkeypatch):
    monkeypatch.setattr("evaluation.certify.logged_days.MAX_WINDOWS", 1000)
    encoding = load_encoding(made / "twin")
    archive = Archive(made / "archive")
    (windows,) = days_windows(archive, encoding, [dt.date(2024, 1, 2)], num_steps=128)
    rows = windows.row[counted_once(windows)]
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) > archive.num_rows("requests", dt.date(2024, 1, 2)) - 128 // 4


def test_training_asks_for_a_certificate_or_force(made, status, capsys):
    found = certification_in(certification_folder(made / "twin"))
    assert found.verdict == "fail"
    command = ["train", str(made / "twin"), "--out", str(made / "policy"), "--no-progress"]
    assert main(command) == 2
    assert "failed its certificate" in capsys.readouterr().err
    facts = found.facts()
    assert facts == {"certificate": None, "certification": "trained in a twin that failed its certificate"}


def test_only_a_certificate_of_this_very_twin_counts(made, status, tmp_path):
    other = tmp_path / "twin"
    with writing(other, "twin", config={"other": True}) as out:
        (out / "encoding.json").write_text("{}")
    with writing(
        folder_beside(other), "certificate", made_from={"twin": "another"}, extra={"verdict": "pass"}
    ):
        pass
    assert certification_in(certification_folder(other)).verdict == "none"
    with pytest.raises(ConfigError, match="no certificate"):
        refuse_uncertified(certification_in(certification_folder(other)), other)
    hashes = {"twin": read_manifest(other).content_hash}
    with writing(
        folder_beside(other), "certificate", made_from=hashes, extra={"verdict": "pass"}, replace=True
    ):
        pass
    found = certification_in(certification_folder(other))
    assert found.facts()["certificate"] == read_manifest(folder_beside(other)).content_hash
    refuse_uncertified(found, other)


@pytest.mark.parametrize(
    ("verdict", "training"), [("fail", "pass"), ("cannot tell", "pass"), ("fail", "cannot tell")]
)
def test_what_training_does_not_use_does_not_forbid_it(tmp_path, verdict, training):
    extra = {"verdict": verdict, "training": training}
    with writing(tmp_path / "certificate", "certificate", extra=extra):
        pass
    found = certification_in(tmp_path / "certificate")
    assert (found.verdict, found.passed, found.failed) == (verdict, training == "pass", False)
    assert ("but for the workload model" in found.facts()["certification"]) == found.passed
    assert bool(found.held_back) == (not found.passed)


@pytest.mark.parametrize(
    ("days", "message"),
    [
        ("2024-01-01", "overlap the training"),
        ("2023-12-31", "overlap the training"),
        ("2024-02-01", "no requests on requested days"),
        ("soon", "not a list of days"),
    ],
)
def test_days_that_cannot_be_held_out_are_refused(made, capsys, days, message):
    assert certify(made, "--days", days, "--keep", str(made / "refused")) == 2
    assert message in capsys.readouterr().err
    assert not (made / "refused").exists()


def test_the_twin_s_own_log_is_one_that_it_could_have_been_fitted_on(made, tmp_path):
    twin = made / "twin"
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        told = generate_log(twin, 1, tmp_path / name, SilentProgress(), policy="least_loaded", seed=seed)
        assert told.num_unsettled == 0
    archive = Archive(tmp_path / "first")
    assert list(archive.days("requests")) == [dt.date(2024, 1, 2)]
    rows, real = (
        one.read("requests", days=[dt.date(2024, 1, 2)]) for one in (archive, Archive(made / "archive"))
    )
    assert archive.content_hash == Archive(tmp_path / "again").content_hash
    assert archive.content_hash != Archive(tmp_path / "other").content_hash
    assert main(["check", str(tmp_path / "first"), "--no-progress"]) == 0
    assert 0.6 < len(rows) / len(real) < 1.6
    assert set(pc.unique(rows["service"]).to_pylist()) <= set(pc.unique(real["service"]).to_pylist())
    accepted = rows["accepted"].to_numpy(zero_copy_only=False)
    ran = pc.is_valid(rows["ran_node"]).to_numpy(zero_copy_only=False)
    assert not np.any(ran & ~accepted)
    assert archive.num_rows("requests") == len(rows)
    encoding = load_encoding(twin)
    anew = fit_encoding(archive, archive.days("requests"))
    assert anew.cluster.node_names == encoding.cluster.node_names
    np.testing.assert_array_equal(anew.cluster.capacity, encoding.cluster.capacity)
    with pytest.raises(ConfigError, match="no policy"):
        generate_log(twin, 1, tmp_path / "refused", SilentProgress(), policy="nobody")
    with pytest.raises(ConfigError, match="9000000 days from"):
        generate_log(twin, 9_000_000, tmp_path / "refused", SilentProgress(), policy="least_loaded")
    assert not (tmp_path / "refused").exists()


def test_too_few_rows_for_a_network_are_said_in_manifest_and_certificate(made):
    found = read_manifest(made / "twin").extra["population"]
    assert found["kind"] == "bootstrap"
    assert (found["num_rows"], found["rows_a_unit"]) == (192, 8)
    assert "too few to train chain" in found["fallback"]
    assert read_manifest(made / "twin").files.keys() >= {"population/facts.json", "population/population.npz"}


def altered(made, folder, change):
    """The archive with the requests after the training day changed."""
    archive = Archive(made / "archive")
    rows = archive.read("requests").unify_dictionaries()
    late = pc.greater_equal(
        rows["arrival"], pa.scalar(dt.datetime(2024, 1, 2, tzinfo=dt.UTC), rows["arrival"].type)
    )
    for name, value in change.items():
        type_ = rows.schema.field(name).type
        column = pc.cast(rows[name], pa.string()) if pa.types.is_dictionary(type_) else rows[name]
        column = pc.if_else(late, pa.scalar(value, column.type), column)
        rows = rows.set_column(
            rows.column_names.index(name),
            name,
            pc.cast(column, type_) if type_ == column.type else column.combine_chunks().dictionary_encode(),
        )
    with ArchiveWriter(folder, source={}, facts={}) as writer:
        writer.write("nodes", archive.nodes(), source="nodes", first_row=0, raw=None)
        writer.write("requests", rows, source="requests", first_row=0, raw=None)
    return folder


def test_an_archive_without_outcomes_is_refused_or_recorded(made, tmp_path):
    change = {"start": None, "finish": None, "status": "waiting", "accepted": None, "ran_node": None}
    archive = altered(made, tmp_path / "archive", change)
    with pytest.raises(ConfigError, match="too few requests"):
        build_certificate(tmp_path, archive, made / "twin", None, QUICK, SilentProgress())
    with writing(tmp_path / "told", "certificate", extra=(extra := {})) as out:
        extra |= build_certificate(
            out, archive, made / "twin", None, QUICK, SilentProgress(), record_refusal=True
        )
    assert certification_in(tmp_path / "told").verdict == "cannot tell"
    told = load_certificate(tmp_path / "told")
    assert "too few requests" in told.in_words()
    assert EXIT_STATUS[told.verdict] == 4


def test_an_archive_without_decisions_is_refused(made, tmp_path):
    archive = altered(made, tmp_path / "archive", {"offered_node": None, "ran_node": None})
    with pytest.raises(ConfigError, match="known decision"):
        build_certificate(tmp_path, archive, made / "twin", None, QUICK, SilentProgress())


def test_a_service_unseen_in_training_is_noted(made, tmp_path):
    archive = Archive(altered(made, tmp_path / "archive", {"service": "brand new"}))
    encoding, day = load_encoding(made / "twin"), dt.date(2024, 1, 2)
    (note,) = unseen_labels(archive, encoding, [day])
    count = archive.num_rows("requests", day)
    assert note.startswith(f"service: {count:,} of {count:,} requests")
    assert note.endswith("taken as unknown (brand new)")
    assert unseen_labels(Archive(made / "archive"), encoding, [day]) == ()


def test_a_node_unseen_in_training_is_noted_where_the_log_names_only_the_node_that_ran(made, tmp_path):
    archive = Archive(altered(made, tmp_path / "archive", {"offered_node": None, "ran_node": "brand new"}))
    (note,) = unseen_labels(archive, load_encoding(made / "twin"), [dt.date(2024, 1, 2)])
    assert note.startswith("decided node: ")
    assert note.endswith("left out (brand new)")


def test_days_of_many_requests_are_looked_at_in_parts(made, monkeypatch):
    monkeypatch.setattr("evaluation.certify.logged_days.MAX_WINDOWS", 4)
    encoding = load_encoding(made / "twin")
    (windows,) = days_windows(Archive(made / "archive"), encoding, [dt.date(2024, 1, 2)], num_steps=128)
    rows = windows.row[counted_once(windows)]
    assert windows.num_windows <= 4
    assert len(np.unique(rows)) == len(rows) == 128 + (windows.num_windows - 1) * 32
