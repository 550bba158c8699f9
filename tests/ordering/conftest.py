"""Real logs as jobs, read once a session."""

import pytest

from logs_schema import Archive, import_log
from twin.ordering.jobs import read_jobs


@pytest.fixture(scope="session")
def kth(shared_data, tmp_path_factory):
    """The jobs of the KTH log of the Parallel Workloads Archive: 100 processors, whole seconds."""
    folder = tmp_path_factory.mktemp("kth") / "archive"
    import_log("swf", [shared_data / "kth-sp2-1996"], folder)
    return read_jobs(Archive(folder))
