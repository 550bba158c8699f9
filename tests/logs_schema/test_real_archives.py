"""Every real log is imported whole, once, and its check reports what its README says."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from logs_schema.check import check_archive
from logs_schema.check_report import CheckReport
from logs_schema.importing import ImportReport, import_log

LOGS = {
    "wagap": ("wagap", "wagap-2013", 17_898, {"negative:run": 2}),
    "kth": ("swf", "kth-sp2-1996", 28_481, {}),
    "kth resimulated": ("swf", "kth-sp2-resimulated/easy.swf.gz", 28_481, {}),
    "theta": ("lumos", "alcf-theta-2023", 14_374, {}),
    "openb": ("openb", "openb-2023", 8_152, {}),
    "alibaba": ("alibaba2018", "alibaba-2018-sample", 39_931, {}),
    "philly": ("philly", "philly-2017", 77_102, {}),
}
"""Format, path, rows and quarantine of the requests."""
Imported = Callable[[str], tuple[Path, ImportReport]]


@pytest.fixture(scope="module")
def imported(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Name of a log -> its archive, made once, and the report of its import."""

    @functools.cache
    def archive_of(name: str) -> tuple[Path, ImportReport]:
        folder = tmp_path_factory.mktemp("real") / "archive"
        kind, path, _, _ = LOGS[name]
        return folder, import_log(kind, [shared_data / path], folder)

    return archive_of


def checked(imported: Imported, name: str) -> CheckReport:
    return check_archive(imported(name)[0])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "openb" else pytest.mark.slow) for name in LOGS]
)
def test_it_is_imported_whole(imported: Imported, name: str) -> None:
    _, _, num_rows, quarantined = LOGS[name]
    _, report = imported(name)
    assert report.rows["requests"] == num_rows
    assert report.quarantined.get("requests", {}) == quarantined


@pytest.mark.slow
def test_wagap_is_checked(imported: Imported) -> None:
    report = checked(imported, "wagap")
    assert report.usable
    cores, memory = report.capacities
    assert (cores.num_places, cores.largest_share, cores.over) == (44, 1.0, ())
    assert [place.place for place in memory.over if place.peak > 1.05 * place.capacity] == ["1247", "1246"]
    assert report.timing.num_overruns == 702
    answers = {line.name: line.answer for line in report.capabilities}
    assert [answers[name] for name in ("decisions", "true_waits", "node_capacities", "days")] == ["yes"] * 4
    assert [answers[name] for name in ("deadlines", "tiers", "propensities")] == ["no"] * 3


@pytest.mark.slow
def test_kth_is_checked(imported: Imported) -> None:
    report = checked(imported, "kth")
    assert [(place.peak, place.capacity) for place in report.capacities[0].over] == [(104.0, 100.0)]


def test_openb_is_checked(imported: Imported) -> None:
    assert checked(imported, "openb").days.training_days(30) == 4


@pytest.mark.slow
def test_theta_is_checked(imported: Imported) -> None:
    cores = checked(imported, "theta").capacities[0]
    assert cores.largest_share == pytest.approx(1.0)
    assert cores.over == ()


@pytest.mark.slow
def test_philly_is_checked(imported: Imported) -> None:
    capabilities = {line.name: line for line in checked(imported, "philly").capabilities}
    assert capabilities["true_waits"].answer == "no"
    assert "simulat" in capabilities["true_waits"].reason
