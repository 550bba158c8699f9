"""An import part by part writes the archive of an import in one go, byte for byte, and takes up what is there."""

import random
from pathlib import Path

import pytest

from logs_schema import Archive, FormatError, fragments
from logs_schema.importing import import_log
from logs_schema.mapping import one_by_one

HEADER = "request_id,arrival,site,service,agent,cpu_cores,start,finish,status,ran_node"


def line(number: int, arrival_s: int, status: str = "completed", cpu: str = "1.5") -> str:
    finish = "" if status == "running" else str(arrival_s + 90)
    times = f"{arrival_s + 5},{finish}" if status != "dropped" else ","
    return f"r{number},{arrival_s},here,service-{number % 7},agent-{number % 11},{cpu},{times},{status},m{number % 3}"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files over three days, out of order: equal keys in several files, unfinished requests, broken lines."""
    folder, rng = tmp_path_factory.mktemp("raw"), random.Random(0)
    for number in range(6):
        rows = [line(rng.randrange(900), 86_400 * 19_000 + rng.randrange(3 * 86_400)) for _ in range(300)]
        rows += [line(rng.randrange(900), 86_400 * 19_000 + 7 * n, "running") for n in range(40)]
        rows += [line(2_000 + n, 86_400 * 19_000 + n, cpu="-1") for n in range(3)]
        rows += ["too,few", "", line(5_000 + number, 86_400 * (19_000 + number % 3))]
        rng.shuffle(rows)
        (folder / f"requests-{number}.csv").write_text("\n".join([HEADER, *rows, ""]))
    (folder / "nodes.csv").write_text(
        "node_id,site,tier,cpu_cores\nm0,here,pool,4\nm1,here,pool,4\nm1,here,pool,8\n"
    )
    return folder


def files_of(path: Path) -> dict[str, bytes]:
    inside = (file for file in path.rglob("*") if file.is_file() and file.name != "manifest.json")
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in inside}


@pytest.fixture(scope="module")
def whole(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("whole") / "archive"
    import_log("native", [log], path)
    return Archive(path)


def test_the_archive_is_the_same_byte_for_byte(log: Path, whole: Archive, tmp_path: Path) -> None:
    assert whole.quarantined("requests").keys() >= {"duplicate_key", "field_count"}
    assert whole.superseded("requests")
    assert whole.facts["num_out_of_order"] > 100
    report = import_log("native", [log], tmp_path / "archive", run_tasks=one_by_one)
    parts = Archive(tmp_path / "archive")
    assert files_of(parts.path) == files_of(whole.path)
    assert parts.content_hash == whole.content_hash
    assert report.rows == {name: whole.num_rows(name) for name in whole.tables}
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]  # nothing is left beside it
    parts.verify()


def test_what_was_read_before_a_kill_is_taken_up(
    log: Path, whole: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(task, items, name=""):
        for number, item in enumerate(items):
            if number == 3:
                raise KeyboardInterrupt
            yield task(item)

    with pytest.raises(KeyboardInterrupt):
        import_log("native", [log], tmp_path / "archive", run_tasks=dying)
    assert not (tmp_path / "archive").exists()
    read = []
    write = fragments.write_fragment
    monkeypatch.setattr(
        "logs_schema.importing_parts.write_fragment",
        lambda folder, items: (read.append(folder), write(folder, items)),
    )
    import_log("native", [log], tmp_path / "archive", run_tasks=one_by_one)
    assert len(read) == 7 - 3
    assert Archive(tmp_path / "archive").content_hash == whole.content_hash


def test_a_fault_of_a_file_is_told_as_it_is_in_one_go(log: Path, tmp_path: Path) -> None:
    (tmp_path / "requests-0.csv").write_text(f"{HEADER},colour\n")
    told = []
    for run_tasks in (None, one_by_one):
        with pytest.raises(FormatError) as caught:
            import_log("native", [tmp_path], tmp_path / "archive", run_tasks=run_tasks)
        told.append(str(caught.value))
        assert [path.name for path in tmp_path.iterdir()] == ["requests-0.csv"]  # nothing is left beside it
    assert told[0] == told[1]
    assert "colour" in told[0]
