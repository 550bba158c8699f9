"""Every importer accounts for every line: lines in = kept + quarantined + superseded + blank + comments."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs_schema import Archive, check_archive, formats
from logs_schema.accounting import LineTally
from logs_schema.errors import ArchiveError, FormatError
from logs_schema.formats import swf
from logs_schema.formats.finding import format_names
from logs_schema.formats.reading import Lines, Reject
from logs_schema.importing import ImportReport, import_log
from logs_schema.table_builder import TableBuilder
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_csv import (
    LAST_POD,
    LUMOS_HEADER,
    LUMOS_JOB,
    NODES,
    NODES_HEADER,
    PHILLY_HEADER,
    PHILLY_JOB,
    POD,
    PODS_HEADER,
    TASK,
)
from tests.logs_schema.test_formats_swf import HEADER, JOB, changed
from tests.logs_schema.test_formats_wagap import job

NATIVE_HEADER = "request_id,arrival,site,status,cpu_cores,start,finish,agent,candidates"
NATIVE_ROWS = (
    "a,0,s,completed,1,5,9,ann,n1|n2",
    "b,2020-01-01,s,running,2,,,bob,",
    "b,2020-01-01,s,completed,2,2020-01-01,2020-01-02,bob,",
)
# format -> file, its header lines, some of its rows, and the files beside it
SAMPLES: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...], Mapping[str, tuple[str, ...]]]] = {
    "swf": ("log.swf", HEADER, (JOB, changed(f1="8"), changed(f1="9", f4="-1", f11="-1")), {}),
    "wagap": (
        "log.swf",
        (),
        (job(1, ["a"]), job(2, ["a", "b"])),
        {"log.swf.machines": ("1 big 3 1000000 1 1048576", "")},
    ),
    "lumos": ("log.csv", (LUMOS_HEADER,), (LUMOS_JOB, LUMOS_JOB.replace("639487", "1")), {}),
    "philly": ("log.csv", (PHILLY_HEADER,), (PHILLY_JOB,), {}),
    "openb": (
        "openb_pod_list_default.csv",
        (PODS_HEADER,),
        (POD, LAST_POD, POD.replace("Succeeded", "Running")),
        {"openb_node_list_all_node.csv": (NODES_HEADER, *NODES, NODES[0], "")},
    ),
    "alibaba2018": ("Task_1.csv", (), (TASK, TASK.replace("Terminated", "Running")), {}),
    "native": ("requests.csv", (NATIVE_HEADER,), NATIVE_ROWS, {}),
}
GATHERING = ("metrics_csv", "prometheus")
"""Formats whose rows are gathered from several lines: `test_formats_metrics` holds their accounts."""
MAPPED = ("requests_csv",)
"""A format that reads whatever its mapping says: `test_formats_requests` holds its accounts."""
HOSTILE = (
    "",
    " ",
    '"',
    '"x',
    'a"b',
    "1e14",
    "1e303",
    "-1",
    "0",
    "1.5",
    "1e400",
    "nan",
    "-inf",
    "9" * 400,
    "\0",
    "\u2028",
    "\x0c",
    "Ω",
    "{,}",
)
JUNK = (
    "",
    "   ",
    "\t",
    ";",
    "; a remark",
    '"',
    '","',
    ",,,,",
    "x",
    "\x1c",
    "\x85",
    "Ω" * 300,
    "x" * 2_000_000,
)


@st.composite
def bodies(draw: st.DrawFn, rows: tuple[str, ...]) -> bytes:
    """Lines under a header: rows, rows with a field replaced, and junk, with line ends of every kind."""
    separator = "," if "," in rows[0] else " "

    def broken(row: str) -> str:
        fields = row.split(separator)
        fields[draw(st.integers(0, len(fields) - 1))] = draw(st.sampled_from(HOSTILE))
        return separator.join(fields)

    made = b""
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.integers(0, 3))
        line = draw(st.sampled_from(JUNK)) if kind == 0 else draw(st.sampled_from(rows))
        text = (broken(line) if kind >= 2 else line).encode() + draw(st.sampled_from((b"", b"", b"\xff")))
        made += text + draw(st.sampled_from((b"\n", b"\r\n", b"\r")))
    return made + draw(st.sampled_from((b"", rows[0].encode())))


def physical_lines(file: Path) -> list[str]:
    """A file's lines as any editor shows them."""
    text = file.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return [line.decode(errors="backslashreplace") for line in text.removesuffix(b"\n").split(b"\n")]


def proved(report: ImportReport, files: Mapping[str, list[str]], *, by_line: bool) -> None:
    """The sum that an import reports is that of its files and of its archive."""
    archive, lines = Archive(report.archive), report.lines
    rows = [row for batch in archive.quarantine() for row in batch.to_pylist()]
    assert lines.read == sum(map(len, files.values()))
    assert lines.blank == sum(not line.strip() for found in files.values() for line in found)
    assert lines.kept == sum(archive.read(name).num_rows for name in archive.tables)
    assert lines.quarantined == len(rows)
    assert lines.read + lines.derived == (
        lines.kept + lines.quarantined + lines.superseded + lines.blank + lines.comments
    )
    told = [row for row in rows if row["rule"] != "duplicate_key"] if by_line else []
    for row in told:
        line = files[row["source"]][row["row"] - 1]
        assert row["raw"].startswith(line[:1000]), "a quarantined row is its line"
        assert len(row["raw"]) < 1_100_000


def test_every_format_has_a_sample() -> None:
    assert sorted({*SAMPLES, *GATHERING, *MAPPED}) == format_names() == sorted(formats.__all__)


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=8)
@given(data=st.data())
def test_every_line_is_accounted_for(name: str, data: st.DataObject) -> None:
    file, header, rows, beside = SAMPLES[name]
    with tempfile.TemporaryDirectory() as folder:
        for other, others in beside.items():
            written(Path(folder), other, *others)
        log = Path(folder, file)
        start = "".join(f"{line}\n" for line in (*header, rows[0]))
        log.write_bytes(start.encode() + data.draw(bodies(rows)))
        report = import_log(name, [log], Path(folder, "archive"))
        proved(report, {path: physical_lines(Path(folder, path)) for path in (file, *beside)}, by_line=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_field_may_hold_anything(name: str, tmp_path: Path) -> None:
    """Each row of a sample with each field replaced by each hostile text, all in one log."""
    file, header, rows, beside = SAMPLES[name]
    separator = "," if "," in rows[0] else " "
    lines = [*header, rows[0]]
    for row in rows:
        fields = row.split(separator)
        for place in range(len(fields)):
            lines += [separator.join([*fields[:place], text, *fields[place + 1 :]]) for text in HOSTILE]
    for other, others in beside.items():
        written(tmp_path, other, *others)
    report = import_log(name, [written(tmp_path, file, *lines)], tmp_path / "a")
    proved(report, {path: physical_lines(tmp_path / path) for path in (file, *beside)}, by_line=True)
    check_archive(report.archive)


def test_rows_that_give_way_are_counted_by_their_rule(tmp_path: Path) -> None:
    log = written(tmp_path, "requests.csv", NATIVE_HEADER, *NATIVE_ROWS, NATIVE_ROWS[0], "")
    report = import_log("native", [log], tmp_path / "a")
    assert report.superseded == {"requests": {"end_told_elsewhere": 1}}
    assert report.quarantined == {"requests": {"duplicate_key": 1}}
    assert str(report.lines) == (
        "6 lines = 2 kept + 1 quarantined + 1 superseded + 1 blank + 1 comments and headers"
    )
    assert Archive(tmp_path / "a").superseded("requests") == {"end_told_elsewhere": 1}


def test_an_importer_that_loses_a_line_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(*arguments: object) -> Iterator[object]:
        yield from (item for item in honest(*arguments) if not isinstance(item, Reject))

    honest = swf.read
    monkeypatch.setattr(swf, "read", forgetful)
    with pytest.raises(FormatError, match="of 6 lines, 1 became rows, 0 are blank and 4 comments"):
        import_log("swf", [written(tmp_path, "log.swf", *HEADER, JOB, "x")], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_writer_that_loses_a_row_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = TableBuilder._spill
    monkeypatch.setattr(
        TableBuilder, "_spill", lambda self, rows, numbers: spill(self, rows[1:], numbers[1:])
    )
    with pytest.raises(ArchiveError, match="of 1 rows of table nodes, 0 were filed"):
        import_log("swf", [written(tmp_path, "log.swf", *HEADER, JOB)], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_tally_adds_files_up() -> None:
    tally = LineTally()
    for item in (
        Lines("a", 3, 1, 1),
        Lines("b", 1, 0, 0),
        Reject("nodes", "x", "a", 1, ""),
        Reject("nodes", "x", "b", 1, ""),
    ):
        tally.add(item)
    tally.refuse_loss("a, b")
    tally.add(Lines("c", 1, 0, 0))
    with pytest.raises(FormatError, match="of 5 lines"):
        tally.refuse_loss("c")
