"""Yesterday's decisions join the history once, whole, and are never lost."""

import datetime as dt
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evaluation.commands.cli import main
from evaluation.jobs.job import run_job
from evaluation.pipeline.refresh.appending import blocks, in_words, settled_among
from evaluation.pipeline.refresh.deciding import EXIT_STATUS, Result
from evaluation.pipeline.refresh.standing import STALE, is_under_way
from evaluation.pipeline.refresh.steps import history_step
from evaluation.problems.refresh_parts import HistorySplit, newest_days
from logs_schema import Archive
from logs_schema.errors import ConfigError, FormatError, ProductError
from logs_schema.importing import import_log
from logs_schema.product import MANIFEST, read_manifest, writing
from logs_schema.progress import SilentProgress
from offline_rl.serving.decision_log import REQUEST_COLUMNS
from offline_rl.serving.journal import Journal

NODES = "node_id,site,tier,cpu_cores\na,here,pool,4\nb,here,pool,4\n"
MIDNIGHT_S = dt.datetime(2024, 5, 2, tzinfo=dt.UTC).timestamp()


def row(number: int, status: str, *, day: int = 0, **more: object) -> list[object]:
    """A row as the server writes it."""
    arrival_s = MIDNIGHT_S + 86_400.0 * day + 60.0 * number
    known = {"request_id": f"{day}-{number}", "arrival": f"{arrival_s:.6f}", "site": "here", "status": status}
    known |= {"offered_node": "a", "decided": known["arrival"], "propensity": 0.5} | more
    if status == "completed":
        known |= {"start": known["arrival"], "finish": f"{arrival_s + 30.0:.6f}", "ran_node": "a"}
    return [known.get(name) for name in REQUEST_COLUMNS]


def served(folder: Path, *batches: list[list[object]], close: bool = True) -> Journal:
    """The server's log, a file for each batch; the last one stays open unless closed."""
    (folder / "decisions").mkdir(parents=True, exist_ok=True)
    (folder / "decisions" / "decisions-1.csv").write_text("request_id,arm\n1,policy\n")
    journal = Journal(folder / "requests", "requests", REQUEST_COLUMNS)
    for batch in batches:
        journal.write(batch)
        if close or batch is not batches[-1]:
            journal.close()
    return journal


@pytest.fixture
def base(tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "nodes.csv").write_text(NODES)
    (raw / "requests.csv").write_text(
        "request_id,arrival,site,status\nold,2024-05-01T10:00:00,here,unknown\n"
    )
    import_log("native", [raw], tmp_path / "base")
    return tmp_path / "base"


def refreshed(base: Path, place: Path, log: Path) -> dict:
    step = history_step(base, place, log, SilentProgress())
    run_job([step], place, SilentProgress())
    return read_manifest(place / "history").extra


def decided(place: Path, result: Result = Result.KEPT) -> None:
    """The mark of a refresh that has come to its end."""
    made_from = {"history": read_manifest(place / "history").content_hash, "candidate": "c"}
    with writing(
        place / "decision", "refresh", made_from=made_from, extra={"result": result.value}, replace=True
    ):
        pass


def test_rows_are_appended_and_counted(base: Path, tmp_path: Path) -> None:
    rows = [row(0, "completed"), row(1, "waiting"), row(2, "completed", day=1), row(3, "nonsense")]
    served(tmp_path / "log", rows, [row(1, "completed")])
    facts = refreshed(base, tmp_path / "work", tmp_path / "log")
    assert (facts["rows_read"], facts["requests_added"], facts["rows_known"], facts["rows_quarantined"]) == (
        5,
        3,
        0,
        1,
    )
    assert (facts["requests"], facts["first_day"], facts["last_day"]) == (4, "2024-05-01", "2024-05-03")
    archive = Archive(tmp_path / "work" / "history" / "archive")
    found = {one["request_id"]: one for one in archive.read("requests").to_pylist()}
    assert found["0-1"]["status"] == "completed"
    assert found["0-1"]["propensity"] == 0.5
    assert Archive(base).num_rows("requests") == 1  # the imported log stays as it was


def test_a_day_whose_log_is_missing_is_told(base: Path, tmp_path: Path) -> None:
    served(tmp_path / "log", [row(0, "completed"), row(1, "completed", day=3)])
    facts = refreshed(base, tmp_path / "work", tmp_path / "log")
    assert facts["days_without"] == ["2024-05-03", "2024-05-04"]
    assert "it has none of 2024-05-03, 2024-05-04: where a log was lost" in in_words(facts)
    decided(tmp_path / "work")
    served(tmp_path / "log", [row(2, "completed", day=4)])
    assert refreshed(base, tmp_path / "work", tmp_path / "log")["days_without"] == []


def test_a_grown_log_adds_what_is_new_and_quarantines_nothing(base: Path, tmp_path: Path) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    journal = served(log, [row(0, "completed"), row(1, "waiting")], close=False)
    first = refreshed(base, place, log)
    assert (first["requests_added"], first["turn"]) == (2, 0)
    decided(place)
    journal.write([row(1, "completed"), row(2, "completed")])
    second = refreshed(base, place, log)
    journal.close()  # renamed and compressed: other bytes, the same rows
    decided(place)
    third = refreshed(base, place, log)
    assert (second["requests_added"], second["rows_known"], second["turn"]) == (1, 1, 1)
    assert (third["requests_added"], third["rows_known"], third["new_files"]) == (0, 4, 1)
    archive = Archive(place / "history" / "archive")
    assert archive.num_rows("requests") == 4
    assert archive.quarantined("requests") == {}
    assert {one["status"] for one in archive.read("requests").to_pylist()} == {"unknown", "completed"}


def test_other_requests_under_the_ids_of_old_ones_are_refused_and_a_requeued_one_is_told(base, tmp_path):
    log, place = tmp_path / "log", tmp_path / "work"
    served(log, [row(number, "completed") for number in range(10)])
    refreshed(base, place, log)
    decided(place)
    later = [[f"0-{number}", *row(number, "completed", day=1)[1:]] for number in range(10)]
    served(log, later)  # ids made of lines, of a file that has another day's log
    with pytest.raises(
        ConfigError, match="10 of 10 rows have the ids of requests in the history that arrived at other"
    ):
        refreshed(base, place, log)
    assert Archive(place / "history" / "archive").num_rows("requests") == 11
    other = tmp_path / "other"
    served(other, [later[0], *(row(number, "completed", day=2) for number in range(10))])
    facts = refreshed(base, place, other)
    assert (facts["requests_added"], facts["rows_known"], facts["rows_other"]) == (10, 1, 1)
    assert "1 of requests whose end was known, 1 of them with another arrival" in in_words(facts)


def bad_lines(place: Path) -> list[tuple[str, int, str]]:
    batches = Archive(place / "history" / "archive").quarantine()
    return sorted((one["source"], one["row"], one["rule"]) for batch in batches for one in batch.to_pylist())


def test_a_bad_line_of_a_growing_file_is_quarantined_once(base: Path, tmp_path: Path) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    lines = ["request_id,arrival,site,status", "a,0,here,nonsense", "no row", "b,0,here,completed"]

    def appended(*more: str, name: str = "requests.csv") -> int:
        lines.extend(more)
        (log / name).parent.mkdir(parents=True, exist_ok=True)
        (log / name).write_text("\n".join(lines) + "\n")
        quarantined = refreshed(base, place, log)["rows_quarantined"]
        decided(place)
        return quarantined

    assert appended() == 2
    assert appended("c,0,here,completed") == 0
    assert appended("no row", "d,0,here,nonsense") == 2  # text that came before, in another line
    assert appended("e,0,here,completed") == 0
    archive = Archive(place / "history" / "archive")
    assert archive.quarantined("requests") == {"field_count": 2, "not_allowed:status": 2}
    assert [row for _, row, _ in bad_lines(place)] == [2, 3, 6, 7]
    assert archive.num_rows("requests") == 4
    (log / "requests.csv.gz").write_bytes(gzip.compress((log / "requests.csv").read_bytes()))
    (log / "requests.csv").unlink()
    assert refreshed(base, place, log)["rows_quarantined"] == 0
    decided(place)
    (log / "requests.csv.gz").unlink()
    assert appended("f,0,here,completed", name="later/requests.csv") == 4
    assert {source for source, _, _ in bad_lines(place)} == {"requests.csv", "later/requests.csv"}


def test_samples_of_a_growing_file_are_added_once(base: Path, tmp_path: Path) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    log.mkdir()
    text = "time,node_id,cpu_cores_used\n0,a,1\n0,a,2\n,a,1\n"
    for more in ("", "60,a,2\n", "120,a,1\n0,b,1\n"):
        text += more
        (log / "node_samples.csv").write_text(text)
        refreshed(base, place, log)
        decided(place)
    assert bad_lines(place) == [
        ("node_samples.csv", 3, "duplicate_key"),
        ("node_samples.csv", 4, "null:time"),
    ]
    assert Archive(place / "history" / "archive").num_rows("node_samples") == 4


def test_the_same_log_again_does_nothing_and_a_log_that_rotates_away_is_not_missed(
    base: Path, tmp_path: Path
) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    served(log, [row(0, "completed")])
    refreshed(base, place, log)
    created = read_manifest(place / "history").created, read_manifest(place / "history").content_hash
    decided(place)
    refreshed(base, place, log)
    assert (
        read_manifest(place / "history").created,
        read_manifest(place / "history").content_hash,
    ) == created
    for file in (log / "requests").iterdir():
        file.unlink()
    served(log, [row(0, "completed", day=1)])
    assert refreshed(base, place, log)["requests"] == 3


@pytest.mark.parametrize("result", [Result.KEPT, Result.EXPORTED])
def test_what_is_under_way_is_finished_first(base: Path, tmp_path: Path, result: Result) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    served(log, [row(0, "completed")])
    refreshed(base, place, log)
    now = dt.datetime.now(dt.UTC)
    assert is_under_way(place, now)
    assert not is_under_way(place, now + STALE + dt.timedelta(minutes=1))
    served(log, [row(1, "completed")])
    assert refreshed(base, place, log)["requests"] == 2  # undecided: newer decisions wait
    decided(place, result)
    if result is Result.EXPORTED:
        assert is_under_way(place, now)  # decided, but the bundle is not out
        with writing(place / "bundle", "job-bundle", made_from={"candidate": "c"}):
            pass
    assert not is_under_way(place, now)
    assert refreshed(base, place, log)["requests"] == 3


def test_news_is_what_no_refresh_has_decided_about(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    served(log, [row(0, "completed"), row(1, "waiting")])
    assert refreshed(base, place, log)["is_news"]
    # Given up before it was decided
    monkeypatch.setattr("evaluation.pipeline.refresh.standing.STALE", dt.timedelta(0))
    served(log, [row(0, "completed")])
    again = refreshed(base, place, log)
    assert (again["requests_added"], again["turn"], again["is_news"]) == (0, 1, True)
    decided(place)
    served(log, [row(0, "completed"), row(0, "completed")])
    again = refreshed(base, place, log)
    assert (again["requests_added"], again["turn"], again["is_news"]) == (0, 2, False)
    decided(place)
    served(log, [row(1, "completed")])
    again = refreshed(base, place, log)
    assert (again["requests_added"], again["is_news"]) == (0, True)  # its end is news


def test_where_nothing_new_came_nothing_is_fitted(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text('[log]\nformat = "native"\npaths = ["raw"]\n')
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "requests.csv").write_text(",".join(REQUEST_COLUMNS) + "\n")
    words = [
        "refresh",
        str(tmp_path / "job.toml"),
        "--log",
        str(tmp_path / "log"),
        "--work",
        str(tmp_path / "work"),
    ]
    assert main([*words, "--no-progress"]) == EXIT_STATUS[Result.KEPT]
    told = capsys.readouterr().out
    assert told.startswith("no new decisions, so nothing was fitted")
    assert "no policy is running" in told.splitlines()[0]
    assert "0 requests added from 1 new file (0 rows read" in told
    assert not (tmp_path / "work" / "refresh" / "twin").exists()
    for held_out, fewer in (("1", False), ("2", True)):  # it goes on, to find that there is one day only
        assert main([*words, "--force", "--no-progress", "--judge-days", held_out]) == 2
        told = capsys.readouterr().err
        assert "are to be held out" in told
        assert ("--judge-days" in told) is fewer


def test_what_cannot_be_appended_is_refused_and_nothing_is_lost(base: Path, tmp_path: Path) -> None:
    log, place = tmp_path / "log", tmp_path / "work"
    with pytest.raises(FormatError, match="no such file"):
        refreshed(base, place, log)
    served(log, [row(0, "completed")])
    refreshed(base, place, log)
    decided(place)
    before = (place / "history" / MANIFEST).read_bytes()
    (log / "requests" / "requests-9.csv").write_text(
        "request_id,arrival,site,status,mood\nx,0,here,completed,bad\n"
    )
    with pytest.raises(FormatError, match="mood"):
        refreshed(base, place, log)
    (log / "requests" / "requests-9.csv").unlink()
    import_log("native", [tmp_path / "raw" / "nodes.csv"], tmp_path / "other")
    served(log, [row(1, "completed")])
    with pytest.raises(ConfigError, match="not the one that the history began with"):
        refreshed(tmp_path / "other", place, log)
    assert (place / "history" / MANIFEST).read_bytes() == before
    part = next((place / "history").rglob("part-0.parquet"))
    part.unlink()
    part.write_bytes(b"spoiled")
    with pytest.raises(ProductError, match="do not agree with the manifest"):
        refreshed(base, place, log)
    assert json.loads(before)["extra"]["requests"] == 2


def test_training_ends_on_a_day_that_the_log_has() -> None:
    """After an outage the days right before the newest ones have no rows: training on them would have none. A misread
    date is no newest day."""
    days = [dt.date(2024, 1, day) for day in (1, 2, 3, 7, 8)]
    rows = dict.fromkeys(days, 900) | {dt.date(2099, 1, 1): 1}
    archive = cast(
        Archive,
        SimpleNamespace(days=lambda _: list(rows), num_rows=lambda _, day: rows[day], path=Path("log")),
    )
    assert newest_days(archive, 2) == HistorySplit((days[3], days[4]), days[2])
    assert newest_days(archive, 4) == HistorySplit(tuple(days[1:]), days[0])
    with pytest.raises(ConfigError, match="has 5 days with requests, and 5 of them"):
        newest_days(archive, 5)


def test_a_history_is_looked_up_by_blocks_as_large_as_what_is_looked_for(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [pa.record_batch({"number": list(range(first, first + 3))}) for first in range(0, 12, 3)]
    assert [part.num_rows for part in blocks(batches, 5)] == [6, 6]
    assert [part["number"].to_pylist() for part in blocks(batches, 9)] == [list(range(9)), [9, 10, 11]]
    assert list(blocks([], 5)) == []
    archive, looked = Archive(base), list[int]()
    ids = pa.array([f"new-{number}" for number in range(100)])
    whole = pc.is_in

    def counted(values: pa.Array, value_set: pa.Array) -> pa.Array:
        looked.append(len(value_set))
        return whole(values, value_set=value_set)

    few = archive.scan
    monkeypatch.setattr(
        Archive,
        "scan",
        lambda _, *names, **options: [one for one in few(*names, **options) for _ in range(10)],
    )
    monkeypatch.setattr(pc, "is_in", counted)
    assert settled_among(archive, ids).num_rows == 0
    assert looked.count(100) == 1
