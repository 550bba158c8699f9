"""Numbers, lines, inventories and files that a log should not hold cost a row or are named; never the import."""

import bz2
import gzip
import json
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs_schema import Archive, ArchiveWriter, FormatError, check_archive
from logs_schema.casting import cast_rows
from logs_schema.errors import SchemaError
from logs_schema.formats import files, lumos, openb, reading, wagap_survey
from logs_schema.importing import import_log
from logs_schema.tables import REQUESTS
from tests.logs_schema.collecting import collect, written
from tests.logs_schema.samples import sample_rows
from tests.logs_schema.test_formats_accounting import SAMPLES
from tests.logs_schema.test_formats_csv import (
    LUMOS_HEADER,
    LUMOS_JOB,
    NODES,
    NODES_HEADER,
    POD,
    PODS_HEADER,
    swapped,
)
from tests.logs_schema.test_formats_wagap import job

FIELDS = {"swf": (" ", (1, 2, 3)), "wagap": (" ", (1, 2, 3)), "lumos": (",", (8, 9, 10)), "philly": (",", (1, 3)),
          "openb": (",", (8, 9, 10)), "alibaba2018": (",", (5, 6)), "native": (",", (1, 5, 6))}  # fmt: skip
"""Separator, and where instants and durations stand, by format."""


@pytest.mark.parametrize("number", ["1e14", "1e303", "9" * 300])
@pytest.mark.parametrize("name", FIELDS)
def test_a_number_beyond_the_calendar_costs_its_row_alone(tmp_path: Path, name: str, number: str) -> None:
    file, header, rows, beside = SAMPLES[name]
    separator, places = FIELDS[name]
    bad = []
    for place in places:
        fields = rows[0].split(separator)
        fields[place] = number
        bad.append(separator.join(fields))
    for other, lines in beside.items():
        written(tmp_path, other, *lines)
    report = import_log(name, [written(tmp_path, file, *header, *bad, rows[0])], tmp_path / "a")
    assert report.rows["requests"] == 1
    rules = report.quarantined["requests"]
    assert sum(rules.values()) == len(places)
    assert all(rule.startswith(("out_of_range:", "not_finite:")) for rule in rules), rules


def test_a_broken_number_does_not_make_the_machine_larger(tmp_path: Path) -> None:
    jobs = [
        swapped(LUMOS_JOB, f1=str(n), f9=str(1000 + 9000 * n), f11=run)
        for n, run in enumerate(("1e13", "5", "5"))
    ]
    found = collect(lumos, [written(tmp_path, "t.csv", LUMOS_HEADER, *jobs)])
    assert found.rows["nodes"][0]["cpu_cores"] == 512.0
    written(tmp_path, openb.NODE_LIST, NODES_HEADER, *NODES)
    pods = (swapped(POD, f10="1e14"), swapped(POD, f1="b", f8="Running"))
    found = collect(openb, [written(tmp_path, openb.DEFAULT_PODS, PODS_HEADER, *pods)])
    assert found.rows["requests"][0]["status"] == "running", "the log ends with the last pod that is one"


def test_a_compressed_file_is_known_by_its_content(tmp_path: Path) -> None:
    file, header, rows, _ = SAMPLES["lumos"]
    text = "\n".join([*header, *rows]).encode()
    (tmp_path / file).write_bytes(gzip.compress(text))
    assert import_log("lumos", [tmp_path / file], tmp_path / "a").rows["requests"] == len(rows)
    (tmp_path / file).write_bytes(bz2.compress(text))
    with pytest.raises(FormatError, match="compressed by bzip2"):
        import_log("lumos", [tmp_path / file], tmp_path / "b")
    for mode in ("w", "w:gz"):
        with tarfile.open(tmp_path / "logs.tar.gz", mode) as archive:
            archive.add(tmp_path / file, file)
        with pytest.raises(FormatError, match="tar archive"):
            import_log("lumos", [tmp_path / "logs.tar.gz"], tmp_path / "b")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_utf_16_is_named(tmp_path: Path, name: str) -> None:
    text = "job,user\n1,2\n".encode("utf-16")
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(FormatError, match="the file is UTF-16"):
        import_log("lumos", [tmp_path / name], tmp_path / "a")


def test_a_line_without_an_end_is_a_quarantined_row(tmp_path: Path) -> None:
    file, header, rows, _ = SAMPLES["lumos"]
    long = "9" * 30_000_000
    (tmp_path / f"{file}.gz").write_bytes(
        gzip.compress("\n".join([*header, rows[0], long, rows[1]]).encode(), 1)
    )
    report = import_log("lumos", [tmp_path / f"{file}.gz"], tmp_path / "a")
    assert (report.rows["requests"], report.quarantined["requests"]) == (2, {"line_too_long": 1})
    (bad,) = [row for batch in Archive(tmp_path / "a").quarantine() for row in batch.to_pylist()]
    assert bad["raw"] == f"{long[:1000]} ..."


def test_control_letters_of_a_bad_row_do_not_reach_the_terminal(tmp_path: Path) -> None:
    file, header, rows, _ = SAMPLES["lumos"]  # a crash leaves zeros in a file
    import_log("lumos", [written(tmp_path, file, *header, *rows, "\0\x1b[31m\u00e9")], tmp_path / "a")
    (told,) = [one for one in check_archive(tmp_path / "a").warnings if "first in" in one]
    assert r"\x00\x1b[31m" in told
    assert "\u00e9" in told


def test_lines_are_read_in_pieces_and_numbered_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a\r\nb\rc\n\n" + "d" * 25 + "\n" + "e" * 10 + "\n\u2028f\x0c\nlast"
    (tmp_path / "x").write_bytes(text.encode())
    expected = ["a", "b", "c", "", "d" * 25, "e" * 10, "\u2028f\x0c", "last"]
    for block in (1, 2, 3, 7, 100):
        monkeypatch.setattr(files, "_BLOCK_LETTERS", block)
        assert list(files.numbered_lines(tmp_path / "x")) == list(enumerate(expected, 1))
        monkeypatch.setattr(files, "MAX_LINE_LETTERS", 10)
        found = [line for _, line in files.numbered_lines(tmp_path / "x")]
        assert found[4].startswith("d" * 11)
        assert len(found[4]) <= max(11 + block, 25)
        assert found[:4] + found[5:] == expected[:4] + expected[5:]
        monkeypatch.undo()


def test_wide_rows_make_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_LETTERS", 200)
    jobs = [swapped(LUMOS_JOB, f1=str(number)) for number in range(50)]
    items = list(lumos.read([written(tmp_path, "t.csv", LUMOS_HEADER, *jobs)]))
    assert [item.rows.num_rows for item in items if isinstance(item, reading.Chunk)] == [1, *[3] * 16, 2]


@pytest.mark.parametrize("nodes", ["9223372036854775808", "200000000", "-5", "9" * 400, "nan"])
def test_an_inventory_is_bounded(tmp_path: Path, nodes: str) -> None:
    log = written(tmp_path, "log.swf", job(1, ["a"]))
    for line in (f"1 big {nodes} 80 1 1024", f"1 big 1 {nodes}e9 1 1024"):
        written(tmp_path, "log.swf.machines", "1 small 5 8 1 1024", line)
        with pytest.raises(FormatError, match=r"describes no class[\s\S]*line 2[\s\S]*250,000 nodes in all"):
            import_log("wagap", [log], tmp_path / "a")
    many = wagap_survey.MAX_NODES - 4
    written(tmp_path, "log.swf.machines", "1 small 5 8 1 1024", f"1 big {many} 80 1 1024")
    with pytest.raises(FormatError, match="line 2"):
        import_log("wagap", [log], tmp_path / "a")


@pytest.mark.parametrize("names", [["site"] * 100_000, [f"c{number}" for number in range(100_000)]])
def test_many_columns_are_refused_shortly(tmp_path: Path, names: list[str]) -> None:
    header = ",".join(["request_id", "arrival", "status", *names])
    with pytest.raises(FormatError, match=r"unknown columns|repeated columns") as caught:
        import_log("native", [written(tmp_path, "requests.csv", header)], tmp_path / "a")
    assert len(str(caught.value)) < 2000
    rows = pa.table([pa.array(["x"])] * len(names), names=names)
    with pytest.raises(SchemaError) as refused:
        cast_rows(REQUESTS, rows)
    assert len(str(refused.value)) < 2000


def test_a_log_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "t.csv", f"{LUMOS_HEADER},job", f"{LUMOS_JOB},2")
    with pytest.raises(FormatError, match=r"lacks \(or repeats\) job"):
        import_log("lumos", [path], tmp_path / "a")


@pytest.mark.parametrize("header", ['"' + "x" * 140_000 + '"', "x" * 3_000_000, '"never ends'])
@pytest.mark.parametrize("name", ["native", "lumos", "philly"])
def test_headers_that_are_none_are_named(tmp_path: Path, name: str, header: str) -> None:
    with pytest.raises(FormatError, match=r"requests\.csv") as caught:
        import_log(name, [written(tmp_path, "requests.csv", header, "1,2,3")], tmp_path / "a")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", ["native", "swf", "lumos"])
def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(FormatError, match=r"no regular file[\s\S]*log\.csv"):
        import_log(name, [tmp_path / "log.csv"], tmp_path / "a")


def test_a_pipe_beside_the_log_is_named(tmp_path: Path) -> None:
    log = written(tmp_path, "log.swf", job(1, ["a"]))
    os.mkfifo(tmp_path / "log.swf.machines")
    with pytest.raises(FormatError, match=r"no regular file[\s\S]*log\.swf\.machines"):
        import_log("wagap", [log], tmp_path / "a")


@pytest.mark.parametrize(("name", "ending"), [("native", b".csv"), ("swf", b".swf")])
@pytest.mark.parametrize("by_folder", [True, False])
def test_a_name_that_is_not_utf8_is_named(tmp_path: Path, name: str, ending: bytes, by_folder: bool) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = Path(os.fsdecode(os.fsencode(folder) + b"/requests-\xff" + ending))
    file.write_text("\n".join(SAMPLES[name][1] + SAMPLES[name][2]), encoding="utf-8")
    with pytest.raises(FormatError, match=r"not UTF-8[\s\S]*requests-\\udcff"):
        import_log(name, [folder if by_folder else file], tmp_path / "a")


def with_bytes(rows: pa.Table, name: str, value: bytes) -> pa.Table:
    """The rows with the first value of a column of text replaced by bytes that Arrow does not look at."""
    kind = rows.schema.field(name).type
    if pa.types.is_list(kind):
        flat = pa.array([value, b"b"], pa.binary()).view(pa.string())
        offsets = pa.array([0, 2, *[2] * (rows.num_rows - 1)], pa.int32())
        column = pa.ListArray.from_arrays(offsets, flat)
    else:
        texts = [text.encode() for text in rows[name].cast(pa.string()).fill_null("x").to_pylist()]
        column = pa.array([value, *texts[1:]], pa.binary()).view(pa.string())
    return rows.set_column(rows.column_names.index(name), name, column)


@pytest.mark.parametrize("name", ["request_id", "agent", "status", "ran_nodes"])
def test_text_that_is_not_utf8_costs_its_row_and_check_reads_the_rest(tmp_path: Path, name: str) -> None:
    rows = with_bytes(sample_rows(REQUESTS, 5, np.random.default_rng(2)), name, b"ab\xff\xfe")
    pq.write_table(rows, tmp_path / "requests.parquet")
    report = import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")
    assert report.quarantined == {"requests": {f"not_utf8:{name}": 1}}
    (bad,) = [row for batch in Archive(tmp_path / "a").quarantine() for row in batch.to_pylist()]
    said = json.loads(bad["raw"])[name]
    assert "ab\\xff\\xfe" in (said if isinstance(said, list) else [said])
    assert check_archive(tmp_path / "a").tables["requests"].rows == 4


def test_a_column_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"siteXX": ["a"]}), tmp_path / "requests.parquet", store_schema=False)
    data = (tmp_path / "requests.parquet").read_bytes()
    (tmp_path / "requests.parquet").write_bytes(data.replace(b"siteXX", b"site\xff\xff"))
    with pytest.raises(FormatError, match=r"cannot be read as Parquet|no native log|which table"):
        import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")


@pytest.mark.parametrize(
    "instants",
    [
        pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("s", tz="UTC")),
        pa.array([0, -(2**62)], pa.int64()).cast(pa.timestamp("ms")),
        pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us", tz="Europe/Prague")),
        pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([0, 2**62], pa.int64()).cast(pa.date64()),
        pa.array([0.0, 1e300]),
        pa.array([0, 2**63 - 1], pa.uint64()),
    ],
    ids=["s", "ms", "us", "date32", "date64", "float", "uint64"],
)
def test_instants_of_any_type_beyond_the_calendar_cost_their_row(tmp_path: Path, instants: pa.Array) -> None:
    rows = pa.table(
        {"request_id": ["a", "b"], "arrival": instants, "site": ["s", "s"], "status": ["unknown"] * 2}
    )
    with ArchiveWriter(tmp_path / "a") as writer:
        writer.write("requests", rows, source="requests.parquet")
    assert Archive(tmp_path / "a").quarantined("requests") == {"out_of_range:arrival": 1}
    assert Archive(tmp_path / "a").read("requests")["arrival"].to_pylist() == [
        datetime(1970, 1, 1, tzinfo=UTC)
    ]


def test_a_bad_row_beside_instants_in_nanoseconds_is_quarantined(tmp_path: Path) -> None:
    arrival = pa.array([1_582_977_600_000_000_001] * 2, pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    rows = pa.table(
        {"request_id": ["a", "b"], "arrival": arrival, "site": ["s", None], "status": ["unknown"] * 2}
    )
    pq.write_table(rows, tmp_path / "requests.parquet")
    import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")
    (bad,) = [row for batch in Archive(tmp_path / "a").quarantine() for row in batch.to_pylist()]
    assert json.loads(bad["raw"])["arrival"] == "2020-02-29T12:00:00+00:00"
