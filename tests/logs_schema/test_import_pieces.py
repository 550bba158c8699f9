"""One large file is read in pieces by tasks of their own: the same archive, byte for byte."""

import random
from pathlib import Path

import pytest

from logs_schema import Archive
from logs_schema.formats import pieces
from logs_schema.formats.pieces import LogPiece, Span, pieces_of
from logs_schema.importing import import_log
from logs_schema.mapping import one_by_one
from tests.logs_schema.test_import_parts import files_of

MAPPING = """
[columns.arrival]
source = "t"
unit = "s"
[columns.start]
source = "begun"
unit = "s"
[columns.run_s]
source = "run"
[columns.cpu_cores]
source = "cores"
[columns.agent]
source = "user"
[columns.ran_node]
source = "node"
"""
NODES = "node_id,site,tier,cpu_cores\nn0,here,pool,4\nn1,here,pool,4\n"


def log_in(folder: Path, end: str = "\n") -> list[Path]:
    """Two small files about a large one, whose requests are named by their lines: broken and blank lines, letters of
    several bytes, a byte order mark, and no newline at the end."""
    rng = random.Random(1)
    for number, num_rows in enumerate((3, 400, 5, 2)):
        lines = ["t,begun,run,cores,user,node"]
        for _ in range(num_rows):
            t = 1_700_000_000 + rng.randrange(200_000)
            lines.append(f"{t},{t + 3},{rng.randrange(90)},1,Jürgen-{rng.randrange(9)},n{rng.randrange(2)}")
        lines[2:2] = ["too,few", "", "\ufeff"] if number == 1 else []
        (folder / f"log-{number}.csv").write_bytes(("\ufeff" + end.join(lines)).encode())
    (folder / "map.toml").write_text(MAPPING)
    (folder / "nodes.csv").write_text(NODES)
    return [folder]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_archive_is_that_of_an_import_in_one_go(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw").mkdir()
    log = log_in(tmp_path / "raw", end)
    whole = import_log("requests_csv", log, tmp_path / "whole")
    assert whole.lines.read == 4 + 404 + 6 + 3 + 3
    monkeypatch.setattr(pieces, "PIECE_BYTES", 700)
    cut = pieces_of(sorted((tmp_path / "raw").glob("log*")))
    assert cut[0] == LogPiece(0, 1)
    assert cut[-1] == LogPiece(2, 4)
    num_spans = sum(one.span is not None for one in cut)
    assert num_spans == 1 if end == "\r" else num_spans > 10
    found = import_log("requests_csv", log, tmp_path / "parts", run_tasks=one_by_one)
    assert found.lines == whole.lines
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")
    assert Archive(tmp_path / "parts").content_hash == Archive(tmp_path / "whole").content_hash


def test_spans_are_whole_lines_and_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 10)
    file = tmp_path / "a.csv"
    file.write_bytes(b"12345\n12345\r\n1\r2\n0123456789\nend")
    assert pieces_of([file]) == [
        LogPiece(0, 1, Span(0, 13, 1)),
        LogPiece(0, 1, Span(13, 28, 3)),
        LogPiece(0, 1, Span(28, 31, 6)),
    ]
    file.write_bytes(b"a" * (1 << 21))  # a line without an end within reach
    assert pieces_of([file]) == [LogPiece(0, 1)]
