"""Logs in one JSON document are read as the same objects in lines."""

import gzip
import json
from pathlib import Path

import pytest

from logs_schema import Archive, FormatError
from logs_schema.formats import json_documents
from logs_schema.formats.pieces import LogPiece, pieces_of
from logs_schema.importing import import_log
from tests.logs_schema.collecting import written

MAPPING = """[columns.arrival]
source = "at"

[columns.request_id]
source = "job.name"

[columns.cpu_cores]
source = "job.cores"
"""
JOBS = [
    {"at": f"2024-03-01T12:00:{number:02}Z", "job": {"name": f"j{number}é\ud83d", "cores": number % 3 + 1}}
    for number in range(40)
]
META = {"kind": "List", "n": 12, "nested": {"items": [1]}, "a": [True, None, -1.5e3]}
DOCUMENTS = {
    "a list": json.dumps(JOBS),
    "an indented list": json.dumps(JOBS, indent=4),
    "of kubectl": json.dumps({"apiVersion": "v1", "items": JOBS, **META}, indent=4),
    "compact, of kubectl": json.dumps({"apiVersion": "v1", "items": JOBS}),
    "of the server of Kubernetes": json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "n": 1}, "items": JOBS},
        separators=(",", ":"),
    ),
    "of sacct": json.dumps({**META, "jobs": JOBS, "errors": []}, indent=1),
    "objects of several lines": "\n".join(json.dumps(job, indent=2) for job in JOBS),
    "lists one after another": json.dumps(JOBS[:7], indent=1) + json.dumps(JOBS[7:]),
}


def archive_of(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(content)
    written(folder, "map.toml", MAPPING)
    import_log("requests_csv", [folder], folder / "archive", capacity={"pool": 8.0})
    return folder / "archive"


def rows_of(archive: Path) -> list[dict[str, object]]:
    return [row for batch in Archive(archive).scan("requests") for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def of_lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    lines = "\n".join(map(json.dumps, JOBS)).encode()
    rows = rows_of(archive_of(tmp_path_factory.mktemp("lines") / "l", "jobs.jsonl", lines))
    assert len(rows) == len(JOBS)
    return rows


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_document_is_the_log_of_its_objects(kind, block, of_lines, tmp_path, monkeypatch):
    monkeypatch.setattr(json_documents, "_BLOCK_LETTERS", block)
    name = "jobs.json.gz" if block == 1 else "jobs.json"
    content = DOCUMENTS[kind].encode()
    found = rows_of(archive_of(tmp_path / "d", name, gzip.compress(content) if block == 1 else content))
    assert found == of_lines


def test_a_large_document_is_not_cut_into_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("logs_schema.formats.pieces.PIECE_BYTES", 256)
    assert pieces_of([written(tmp_path, "jobs.json", DOCUMENTS["an indented list"])]) == [LogPiece(0, 1)]
    assert len(pieces_of([written(tmp_path, "jobs.jsonl", *map(json.dumps, JOBS))])) > 1


def test_what_is_no_object_is_rejected(tmp_path):
    content = json.dumps({"items": [1, JOBS[0], "x", [JOBS[1]]]}, indent=1).encode()
    archive = archive_of(tmp_path / "d", "jobs.json", content)
    assert len(rows_of(archive)) == 1
    assert Archive(archive).quarantined("requests") == {"not_json": 3}


@pytest.mark.parametrize(
    ("content", "after"),
    [
        (json.dumps({"items": JOBS[:3]}, indent=1)[:-60], 2),
        (json.dumps(JOBS[:2]).replace("}}, {", "}} {"), 1),
        ("[\n" * 100_000, 0),
        ('{\n"items" [', 0),
    ],
)
def test_a_document_that_breaks_off_is_refused_whole(content, after, tmp_path):
    with pytest.raises(FormatError, match=f"after {after} objects"):
        archive_of(tmp_path / "d", "jobs.json", content.encode())
    assert not (tmp_path / "d" / "archive").exists()
