"""Memory that is written in another unit than GiB is named at the import and in the report."""

import pytest

from logs_schema.archive import Archive
from logs_schema.importing import import_log
from logs_schema.notices import notices_of
from tests.logs_schema.collecting import written
from tests.logs_schema.test_check_report import NODE, checked, request
from tests.logs_schema.test_formats_swf import JOB, changed


@pytest.mark.parametrize(
    ("of_node", "of_request", "named"),
    [
        (64.0, 8.0, []),
        (64 * 1024.0, 8.0, ["nodes"]),
        (64 * 1024.0, 8 * 1024.0, ["nodes", "requests"]),
        (None, 8 * 1024.0, ["requests"]),
        (None, None, []),
    ],
)
def test_memory_in_mib_is_named(tmp_path, of_node, of_request, named):
    rows = [request(number, 200 * number, memory_gib=of_request) for number in range(3)]
    rows.append(request(3, 700, memory_gib=None, cpu_cores=None))
    report = checked(tmp_path, rows, nodes=[NODE | {"memory_gib": of_node}])
    told = [line.split()[5] for line in report.warnings if "is it in GiB" in line]
    assert told == named


def test_bytes_in_the_field_of_kib_are_named(tmp_path):
    log = written(
        tmp_path, "log.swf", "; MaxProcs: 100", JOB, changed(f1="8", f10=str(2**32)), changed(f1="9")
    )
    archive = Archive(import_log("swf", [log], tmp_path / "a").archive)
    assert not [line for line in notices_of(archive) if "is it in GiB" in line]
    log = written(
        tmp_path, "other.swf", "; MaxProcs: 100", *(changed(f1=str(n), f10=str(2**32)) for n in range(3))
    )
    archive = Archive(import_log("swf", [log], tmp_path / "b").archive)
    assert [line.split()[6] for line in notices_of(archive) if "is it in GiB" in line] == ["is"]
