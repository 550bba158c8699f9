"""Several files of one log: packed copies, equal names in several folders; and dates written as plain numbers."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs_schema import Archive, FormatError
from logs_schema.formats.instant_units import date_meant, unit_notice
from logs_schema.importing import import_log
from logs_schema.mapping import one_by_one
from logs_schema.views import without_views
from tests.logs_schema.collecting import written

ARRIVAL = '[columns.arrival]\nsource = "t"\n'
TASK = "t{},1,j,1,Terminated,10,{},50,1"


def sources(archive: Path) -> set[tuple[str, int]]:
    """File and line of each quarantined row."""
    rows = [row for batch in Archive(archive).quarantine() for row in batch.to_pylist()]
    return {(row["source"], row["row"]) for row in rows}


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_log_beside_its_packed_copy_is_refused(tmp_path: Path, as_folder: bool) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    written(folder, "map.toml", ARRIVAL)
    log = written(folder, "jobs.csv", "t", "2024-03-01")
    packed = folder / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    paths = [folder] if as_folder else [log, packed, folder / "map.toml"]
    with pytest.raises(FormatError, match=r"jobs\.csv\.gz and jobs\.csv stand side by side"):
        import_log("requests_csv", paths, tmp_path / "a")
    log.unlink()
    assert import_log("requests_csv", [folder], tmp_path / "a").rows["requests"] == 1


@pytest.mark.parametrize("run_tasks", [None, one_by_one])
def test_files_of_one_name_stay_apart_in_quarantine(tmp_path: Path, run_tasks) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        written(folder, "batch.csv", TASK.format(number, 20), TASK.format(number + 5, "x"))
        written(folder, "requests.csv", "request_id,arrival,site,status", f"{number},never,s,unknown")
    tasks = [folder / "batch.csv" for folder in folders]
    import_log("alibaba2018", tasks, tmp_path / "a", run_tasks=run_tasks)
    assert sources(tmp_path / "a") == {("one/batch.csv", 2), ("two/batch.csv", 2)}
    native = [folder / "requests.csv" for folder in folders]
    import_log("native", native, tmp_path / "b", run_tasks=run_tasks)
    assert sources(tmp_path / "b") == {("one/requests.csv", 2), ("two/requests.csv", 2)}


def test_metrics_of_files_of_one_name_with_blanks_in_their_lines(tmp_path: Path) -> None:
    mapping = 'deployment_column = "name"\ninterval_s = 30\n[metrics.num_replicas]\nsource = "n"\n'
    paths = [written(tmp_path, "map.toml", mapping)]
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = (f"2024-03-01T0{number}:00:00, web , 2", "2024-03-01T05:00:00, web, many")
        paths.append(written(folder, "m.csv", "time , name, n", *lines))
    report = import_log("metrics_csv", paths, tmp_path / "a")
    assert sources(tmp_path / "a") == {("0/m.csv", 3), ("1/m.csv", 3)}
    assert (report.lines.read, report.rows["deployment_samples"]) == (6, 2)
    rows = next(Archive(tmp_path / "a").scan("deployment_samples")).to_pylist()
    assert {row["deployment"] for row in rows} == {"web"}


@pytest.mark.parametrize(
    ("number", "date"),
    [
        (20240301, "2024-03-01"),
        (202403011230, "2024-03-01T12:30:00"),
        (20240301123005, "2024-03-01T12:30:05"),
        (20241301, ""),
        (86400, ""),
        (1709294460, ""),
        (20240301.5, ""),
        (float("nan"), ""),
        (float("inf"), ""),
        (-20240301, ""),
    ],
)
def test_numbers_that_are_dates(number: float, date: str) -> None:
    assert date_meant(number)[0] == date
    notice = unit_notice(str(number), "s", "arrival", "unit")
    assert (date in notice and "time_format" in notice) if date else not notice


def test_dates_as_numbers_are_noticed(tmp_path: Path) -> None:
    header, nodes = "request_id,arrival,site,status", "node_id,site,tier,cpu_cores"
    inventory = written(tmp_path, "nodes.csv", nodes, "n,s,pool,8")
    for text in ("20240301", "202403011230"):
        log = written(tmp_path, "requests.csv", header, f"1,{text},s,unknown")
        (notice,) = import_log("native", [log, inventory], tmp_path / "a", replace=True).notices
        assert f"the number {text}, read as seconds since 1970" in notice
        assert "2024-03-01" in notice
    jobs = [written(tmp_path, "jobs.csv", "t", "20240301"), written(tmp_path, "map.toml", ARRIVAL), inventory]
    (notice,) = import_log("requests_csv", jobs, tmp_path / "b").notices
    assert 'time_format = "%Y%m%d"' in notice


@pytest.mark.parametrize(
    "kind", [pa.list_view(pa.string()), pa.large_list_view(pa.string_view()), pa.list_(pa.string(), 2)]
)
def test_lists_are_read_from_every_form(tmp_path: Path, kind: pa.DataType) -> None:
    lists = [["a", "b"], None, ["c", "d"]]
    views = pa.table({"x": pa.array([["z", "y"], *lists], kind)}).slice(1)
    assert without_views(views)["x"].to_pylist() == lists
    columns = {
        "request_id": ["1", "2", "3"],
        "arrival": [1.7e9] * 3,
        "site": ["s"] * 3,
        "status": ["unknown"] * 3,
    }
    pq.write_table(pa.table(columns | {"candidates": pa.array(lists, kind)}), tmp_path / "requests.parquet")
    import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")
    assert next(Archive(tmp_path / "a").scan("requests"))["candidates"].to_pylist() == lists


def test_blanks_around_fields_of_a_csv_file_make_no_other_labels(tmp_path: Path) -> None:
    lines = ("1,2024-03-01,s,completed", '2, 2024-03-01, s ,"completed "', "3,2024-03-01,s, ")
    log = written(tmp_path, "requests.csv", "request_id, arrival, site, status", *lines)
    report = import_log("native", [log], tmp_path / "a")
    assert report.quarantined["requests"] == {"null:status": 1}
    rows = next(Archive(tmp_path / "a").scan("requests")).to_pylist()
    assert [(row["request_id"], row["site"], row["status"]) for row in rows] == [
        ("1", "s", "completed"),
        ("2", "s", "completed"),
    ]


def test_an_empty_file_is_called_empty_and_an_hour_without_jobs_is_none(tmp_path: Path) -> None:
    mapping, jobs = written(tmp_path, "map.toml", ARRIVAL), written(tmp_path, "a.jsonl", '{"t": 1709251200}')
    with pytest.raises(FormatError, match="the file is empty"):
        import_log("requests_csv", [written(tmp_path, "jobs.csv", ""), mapping], tmp_path / "a")
    quiet = written(tmp_path, "quiet.jsonl")
    assert import_log("requests_csv", [jobs, quiet, mapping], tmp_path / "a").rows["requests"] == 1


def test_hidden_files_of_a_folder_are_no_log(tmp_path: Path) -> None:
    """What file managers and editors leave beside a log: `._jobs.csv`, `.ipynb_checkpoints/`."""
    log, kept_by_editor = tmp_path / "log", tmp_path / "log" / ".ipynb_checkpoints"
    kept_by_editor.mkdir(parents=True)
    for folder, name in ((log, "requests.csv"), (kept_by_editor, "requests-checkpoint.csv")):
        written(folder, name, "request_id,arrival,site,status", "1,2024-03-01,s,completed")
    (log / "._requests.csv").write_bytes(b"\x00\x05\x16\x07")
    report = import_log("native", [log], tmp_path / "a")
    assert (report.lines.read, report.rows["requests"], dict(report.quarantined)) == (2, 1, {})
    written(log, "map.toml", "[columns.arrival]\n[columns.request_id]\n")
    report = import_log("requests_csv", [log], tmp_path / "b")
    assert (report.lines.read, report.rows["requests"], dict(report.quarantined)) == (2, 1, {})


def test_packed_files_and_folders_beside_those_that_are_read_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (log / "2023" / "deep").mkdir(parents=True)
    (log / "scripts").mkdir()
    written(log, "map.toml", ARRIVAL)
    written(log, "a.csv", "t", "2024-03-01")
    written(log / "scripts", "fetch.py", "pass")
    report = import_log("requests_csv", [log], log / "archive")  # an archive among them is no log
    assert not any("not read" in said for said in report.notices)
    written(log / "2023" / "deep", "b.csv", "t", "2023-03-01")
    (log / "c.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    written(log, "D.CSV", "t", "2024-03-02")
    written(log, "readme.txt", "a log")
    report = import_log("requests_csv", [log], tmp_path / "second")
    (said,) = (said for said in report.notices if "not read" in said)
    assert ": 2023/, D.CSV, c.csv.zst; unpack it, or name it" in said
    report = import_log("requests_csv", [log, log / "2023" / "deep", log / "D.CSV"], tmp_path / "third")
    (said,) = (said for said in report.notices if "not read" in said)
    assert ": c.csv.zst; unpack it" in said
    assert report.rows["requests"] == 3


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    log, mapping = written(tmp_path, "jobs.csv", "t", "2024-03-01"), written(tmp_path, "map.toml", ARRIVAL)
    again, link = tmp_path / ".." / tmp_path.name / "jobs.csv", tmp_path / "link.csv"
    link.symlink_to(log)
    report = import_log("requests_csv", [tmp_path, log, again, link, mapping], tmp_path / "a")
    assert (report.lines.read, report.rows["requests"]) == (2, 1)
    metrics = written(tmp_path, "m.csv", "time,n", "2024-03-01T00:00,2", "2024-03-01T00:01,x")
    mapping = written(
        tmp_path, "m.toml", 'deployment = "web"\ninterval_s = 60\n[metrics.num_replicas]\nsource = "n"\n'
    )
    report = import_log("metrics_csv", [metrics, mapping, metrics], tmp_path / "b")
    assert (report.lines.read, report.rows["deployment_samples"]) == (3, 1)
