"""Real logs as jobs, and a small queue with its twin and certificate, made once a session."""

import pytest

from evaluation.commands import cli
from logs_schema import Archive, import_log
from tests.ordering.making import alike_weeks
from twin.ordering.jobs import read_jobs

CERTIFY = "[certify]\nmax_weeks = 6\nnum_copies = 1\nmax_rows = 400\nnum_replicates = 200\n"


@pytest.fixture(scope="session")
def queue_made(tmp_path_factory):
    """Folder of an archive of fifteen weeks, the twin of four of them and its certificate; the latter's exit status."""
    folder = tmp_path_factory.mktemp("queue")
    (folder / "log.swf").write_text(alike_weeks())
    (folder / "quick.toml").write_text(CERTIFY)
    steps = (
        ("import", "swf", folder / "log.swf", "--out", folder / "archive"),
        ("fit", folder / "archive", "--out", folder / "twin"),
        (
            "certify",
            folder / "twin",
            folder / "archive",
            "--config",
            folder / "quick.toml",
            "--out",
            folder / "report.html",
        ),
    )
    *done, status = [cli.main([*map(str, words), "--no-progress"]) for words in steps]
    assert done == [0, 0]
    return folder, status


@pytest.fixture(scope="session")
def kth(shared_data, tmp_path_factory):
    """The jobs of the KTH log of the Parallel Workloads Archive: 100 processors, whole seconds."""
    folder = tmp_path_factory.mktemp("kth") / "archive"
    import_log("swf", [shared_data / "kth-sp2-1996"], folder)
    return read_jobs(Archive(folder))
