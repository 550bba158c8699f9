import gzip
from datetime import UTC, date, datetime

import pytest

from logs_schema import Archive, ArchiveError, FormatError, check_archive, formats
from logs_schema.formats.finding import find_format, format_names
from logs_schema.importing import import_log
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_csv import (
    LUMOS_HEADER,
    LUMOS_JOB,
    PHILLY_HEADER,
    PHILLY_JOB,
    POD,
    PODS_HEADER,
    TASK,
)
from tests.logs_schema.test_formats_swf import HEADER, JOB, changed
from tests.logs_schema.test_formats_wagap import job

SAMPLES = {
    "swf": (*HEADER, JOB),
    "wagap": (job(1, ["a"]),),
    "lumos": (LUMOS_HEADER, LUMOS_JOB),
    "philly": (PHILLY_HEADER, PHILLY_JOB),
    "openb": (PODS_HEADER, POD),
    "alibaba2018": (TASK,),
}


def test_the_registry_is_what_the_package_exports():
    assert format_names() == [
        "alibaba2018", "lumos", "metrics_csv", "native", "openb", "philly", "prometheus", "requests_csv",
        "swf", "wagap",
    ]  # fmt: skip
    for name in format_names():
        module = find_format(name)
        assert module in [getattr(formats, exported) for exported in formats.__all__]
        assert module.DESCRIPTION
        assert module.EXPECTED
        assert callable(module.read)
        assert callable(module.facts)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_recognises_its_own_lines_alone(name, sample):
    assert find_format(name).looks_like(list(SAMPLES[sample])) == (name == sample)


@pytest.mark.parametrize(("given", "right"), [("swf", "wagap"), ("lumos", "alibaba2018"), ("wagap", "swf")])
def test_a_file_of_another_format_is_told_which(tmp_path, given, right):
    name = "log.swf" if given in ("swf", "wagap") else "log.csv"
    path = written(tmp_path, name, *SAMPLES[right])
    with pytest.raises(FormatError) as caught:
        import_log(given, [path], tmp_path / "archive")
    assert caught.value.advice == f"it looks like {right}"
    assert f"line {len(SAMPLES[right])}" in caught.value.where
    assert caught.value.allowed == find_format(given).EXPECTED
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("name", ["swf", "alibaba2018"])
def test_a_broken_first_row_goes_to_quarantine_not_to_an_error(tmp_path, name):
    lines = SAMPLES[name]
    path = written(tmp_path, "log.swf" if name == "swf" else "log.csv", *lines[:-1], "broken", lines[-1])
    report = import_log(name, [path], tmp_path / "archive")
    assert report.rows["requests"] == 1
    assert report.quarantined == {"requests": {"field_count": 1}}


def test_unknown_formats_list_the_known_ones(tmp_path):
    with pytest.raises(FormatError, match=r"alibaba2018, lumos, metrics_csv, .*, swf, wagap"):
        import_log("sfw", [tmp_path], tmp_path / "archive")


def test_an_empty_file_and_no_file_are_errors(tmp_path):
    with pytest.raises(FormatError, match="holds no rows"):
        import_log("swf", [written(tmp_path, "log.swf")], tmp_path / "archive")
    with pytest.raises(FormatError, match="no file was named"):
        import_log("swf", [], tmp_path / "archive")


def test_a_header_without_jobs_is_no_log(tmp_path):
    with pytest.raises(FormatError, match="holds no rows"):
        import_log("swf", [written(tmp_path, "log.swf", *HEADER)], tmp_path / "archive")


def test_rows_and_rejects_reach_archive_and_quarantine(tmp_path):
    lines = (
        *HEADER,
        JOB,
        changed(f1="8", f4="-600"),
        changed(f1="9"),
        changed(f1="9", f2="70"),
        changed(f1="10"),
    )
    path = written(tmp_path, "log.swf", *lines)
    seen = []
    report = import_log("swf", [path], tmp_path / "archive", progress=seen.append)
    assert report.rows == {"nodes": 1, "requests": 3}
    assert report.quarantined == {"requests": {"duplicate_key": 1, "negative:run": 1}}
    assert report.to_json()["tables"]["requests"] == {"rows": 3, "quarantined": 2, "superseded": 0}
    assert seen[-1] == 6
    archive = Archive(tmp_path / "archive")
    assert archive.days("requests") == [date(2001, 9, 9)]
    bad = [row for batch in archive.quarantine() for row in batch.to_pylist()]
    assert ("negative:run", "log.swf", len(HEADER) + 2, lines[len(HEADER) + 1]) in [
        (row["rule"], row["source"], row["row"], row["raw"]) for row in bad
    ]
    (duplicate,) = [row for row in bad if row["rule"] == "duplicate_key"]
    assert duplicate["row"] == len(HEADER) + 4
    assert archive.facts["num_out_of_order"] == 1
    assert list(archive.made_from) == ["log.swf"]


def test_the_origin_is_kept_as_a_fact_and_moves_the_days(tmp_path):
    path = written(tmp_path, "Task_1.csv", TASK)
    import_log("alibaba2018", [path], tmp_path / "archive", origin=datetime(2018, 1, 1))
    archive = Archive(tmp_path / "archive")
    assert archive.days("requests") == [date(2018, 1, 1)]
    assert archive.facts["origin"] == datetime(2018, 1, 1, tzinfo=UTC).isoformat()


@pytest.mark.parametrize("name", ["swf", "lumos", "philly"])
def test_an_origin_for_a_log_that_tells_its_dates_is_refused(tmp_path, name):
    path = written(tmp_path, "log.swf" if name == "swf" else "log.csv", *SAMPLES[name])
    with pytest.raises(FormatError, match=r"has its own dates[\s\S]*log\."):
        import_log(name, [path], tmp_path / "archive", origin=datetime(2018, 1, 1))
    assert not (tmp_path / "archive").exists()


def test_an_archive_is_made_from_the_inventory_beside_the_log_as_well(tmp_path):
    written(tmp_path, "log.swf.machines", "1 big 3 80 1 1048576")
    import_log("wagap", [written(tmp_path, "log.swf", job(1, ["a"]))], tmp_path / "archive")
    assert sorted(Archive(tmp_path / "archive").made_from) == ["log.swf", "log.swf.machines"]


def test_an_archive_is_replaced_only_on_request(tmp_path):
    path = written(tmp_path, "log.swf", *HEADER, JOB)
    import_log("swf", [path], tmp_path / "archive")
    with pytest.raises(ArchiveError):
        import_log("swf", [path], tmp_path / "archive")
    before = Archive(tmp_path / "archive").content_hash
    import_log("swf", [path], tmp_path / "archive", replace=True)
    assert Archive(tmp_path / "archive").content_hash == before


def test_nothing_is_written_when_reading_fails_half_way(tmp_path):
    packed = gzip.compress("\n".join([*HEADER, *(changed(f1=str(n)) for n in range(20_000))]).encode())
    (tmp_path / "log.swf.gz").write_bytes(packed[:-50])
    with pytest.raises(FormatError, match="compressed data is broken"):
        import_log("swf", [tmp_path / "log.swf.gz"], tmp_path / "archive")
    assert [path.name for path in tmp_path.iterdir()] == ["log.swf.gz"]


def test_a_log_without_a_date_is_told_so_at_its_import_and_in_its_report_until_one_is_given(tmp_path):
    hidden = written(tmp_path, "hidden.swf", *(line for line in HEADER if "UnixStartTime" not in line), JOB)
    dated = written(tmp_path, "dated.swf", *HEADER, JOB)
    (notice,) = import_log("swf", [hidden], tmp_path / "a").notices
    assert "--origin DATE" in notice
    assert str(Archive(tmp_path / "a").days("requests")[0]) in notice
    assert notice in check_archive(tmp_path / "a").warnings
    given = import_log("swf", [hidden], tmp_path / "b", origin=datetime(2024, 3, 1))
    assert not given.notices
    assert Archive(tmp_path / "b").days("requests") == [date(2024, 3, 1)]
    assert not import_log("swf", [dated], tmp_path / "c").notices


def test_seconds_from_a_hidden_zero_and_missing_nodes_of_a_native_log_are_told(tmp_path):
    nodes = written(tmp_path, "nodes.csv", "node_id,site,tier,cpu_cores", "n,s,pool,8")
    rows = ("request_id,arrival,site,status", "1,5,s,completed")
    hidden = written(tmp_path, "requests.csv", *rows)
    (notice,) = import_log("native", [hidden, nodes], tmp_path / "a").notices
    assert "--origin DATE" in notice
    dated = written(tmp_path, "requests.csv", rows[0], "1,2024-03-01T12:00:00Z,s,completed")
    assert not import_log("native", [dated, nodes], tmp_path / "b").notices
    (notice,) = import_log("native", [dated], tmp_path / "c").notices
    assert "nodes.csv" in notice


def test_a_folder_whose_files_lie_in_folders_below_says_so(tmp_path):
    (tmp_path / "log" / "2024-03").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"folders in it are not read; name them: 2024-03"):
        import_log("lumos", [tmp_path / "log"], tmp_path / "archive")
