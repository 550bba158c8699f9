import gzip
from datetime import UTC, datetime

import pytest

from logs_schema.errors import FormatError
from logs_schema.formats import swf
from logs_schema.formats.reading import Chunk, Lines
from tests.logs_schema.collecting import at, collect, written

HEADER = (
    "; Computer: IBM SP2",
    "; UnixStartTime: 1000000000",
    "; TimeZoneString: Europe/Stockholm",
    "; MaxProcs: 100",
)
JOB = "7 50 30 600 4 -1 -1 8 3600 2048 1 12 3 9 2 -1 -1 -1"


def changed(**fields):
    """JOB with some of its fields replaced, named by their position from 1: `f3="-1"`."""
    values = JOB.split()
    for name, value in fields.items():
        values[int(name[1:]) - 1] = value
    return " ".join(values)


def read_one(folder, *lines):
    found = collect(swf, [written(folder, "log.swf", *HEADER, *lines)])
    return found.rows.get("requests", []), found.rejects


def test_a_job_becomes_this_row(tmp_path):
    rows, rejects = read_one(tmp_path, JOB)
    assert rejects == []
    assert rows == [
        {
            "request_id": "7",
            "arrival": at(1_000_000_050),
            "site": "cluster",
            "service": "9",
            "agent": "12",
            "queue": "2",
            "cpu_cores": 8.0,
            "memory_gib": 8 * 2048 / 2**20,
            "requested_run_s": 3600.0,
            "start": at(1_000_000_080),
            "finish": at(1_000_000_680),
            "run_s": None,
            "status": "completed",
            "ran_node": "pool",
        }
    ]


def test_the_pool_has_the_capacity_of_the_header(tmp_path):
    found = collect(swf, [written(tmp_path, "log.swf", *HEADER, JOB)])
    assert found.rows["nodes"] == [
        {
            "node_id": "pool",
            "node_class": "pool",
            "site": "cluster",
            "tier": "pool",
            "cpu_cores": 100.0,
            "virtual": True,
        }
    ]


@pytest.mark.parametrize(
    ("header", "cores"),
    [
        (("; MaxProcs: -1", "; MaxNodes: 64"), 64.0),
        (("; MaxProcs: 1,152 (144 nodes of 8)", "; MaxNodes: 144"), 1152.0),
        (("\ufeff; MaxProcs: 100, of which 4 are interactive", "; MaxNodes: 25"), 100.0),
    ],
)
def test_headers_as_people_write_them(tmp_path, header, cores):
    found = collect(swf, [written(tmp_path, "log.swf", *header, JOB)])
    assert found.rows["nodes"][0]["cpu_cores"] == cores
    assert found.rejects == []


@pytest.mark.parametrize("header", ["; MaxProcs: 1_00", "; MaxNodes: 1_00"])
def test_digits_joined_by_an_underscore_are_no_capacity(tmp_path, header):
    assert swf.pool_capacity(swf.read_header(written(tmp_path, "log.swf", header, JOB))) is None


def test_submit_times_since_1970_are_not_counted_from_a_start(tmp_path):
    rows, _ = read_one(tmp_path, changed(f2="1000000050"))
    assert rows[0]["arrival"] == at(1_000_000_050)
    assert swf.facts([tmp_path / "log.swf"])["clock"] == "absolute"


def test_without_any_capacity_there_is_no_node_and_the_facts_say_so(tmp_path):
    path = written(tmp_path, "log.swf", "; Computer: x", JOB)
    assert "nodes" not in collect(swf, [path]).rows
    assert "MaxProcs" in swf.facts([path])["limits"]["node_capacities"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"f8": "-1"}, {"cpu_cores": 4.0}),
        ({"f8": "0"}, {"cpu_cores": 4.0}),
        ({"f8": "-1", "f5": "-1"}, {"cpu_cores": None, "memory_gib": None}),
        ({"f10": "-1"}, {"memory_gib": None}),
        ({"f9": "-1"}, {"requested_run_s": None}),
        ({"f3": "-1"}, {"start": None, "finish": None, "run_s": 600.0, "ran_node": None}),
        ({"f4": "-1"}, {"start": at(1_000_000_080), "finish": None, "run_s": None}),
        ({"f4": "0"}, {"finish": at(1_000_000_080)}),
        ({"f11": "0"}, {"status": "failed"}),
        ({"f11": "5"}, {"status": "killed", "start": at(1_000_000_080)}),
        (
            {"f11": "5", "f4": "0"},
            {"status": "killed", "start": None, "finish": at(1_000_000_080), "run_s": None, "ran_node": None},
        ),
        ({"f11": "5", "f4": "-1", "f3": "-1"}, {"start": None, "finish": None, "run_s": None}),
        ({"f11": "5", "f4": "-1", "f8": "0", "f5": "0"}, {"status": "killed", "cpu_cores": None}),
        ({"f11": "-1"}, {"status": "unknown"}),
        ({"f12": "-1", "f14": "-1", "f15": "-1"}, {"agent": None, "service": None, "queue": None}),
        ({"f2": "50.5"}, {"arrival": at(1_000_000_050.5)}),
    ],
)
def test_unknown_and_special_values(tmp_path, fields, expected):
    rows, rejects = read_one(tmp_path, changed(**fields))
    assert rejects == []
    assert {name: rows[0][name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (changed(f2="-1"), "unknown:submit"),
        (changed(f2="-5"), "negative:submit"),
        (changed(f3="-2"), "negative:wait"),
        (changed(f4="-600"), "negative:run"),
        (changed(f8="0", f5="0"), "zero:processors"),
        (changed(f8="-1", f5="0"), "zero:processors"),
        (changed(f9="0"), "zero:requested_time"),
        (changed(f10="-7"), "negative:requested_memory"),
        (changed(f11="2"), "partial_execution"),
        (changed(f4="fast"), "not_a_number:run"),
        (changed(f4="6_00"), "not_a_number:run"),
        (changed(f4="nan"), "not_finite:run"),
        (changed(f2="1e300"), "out_of_range:submit"),
        (JOB + " 19", "field_count"),
        ("7 50 30", "field_count"),
    ],
)
def test_each_kind_of_bad_line_is_rejected_by_its_rule(tmp_path, line, rule):
    rows, rejects = read_one(tmp_path, JOB, line, changed(f1="8"))
    assert [row["request_id"] for row in rows] == ["7", "8"]
    assert rejects == [(rule, len(HEADER) + 2)]


def test_line_numbers_count_comments_and_rejects(tmp_path):
    found = collect(
        swf, [written(tmp_path, "log.swf", *HEADER, JOB, "; remark", "x", changed(f1="8"), changed(f1="9"))]
    )
    assert found.lines["requests"] == [5, 8, 9]
    assert found.rejects == [("field_count", 7)]


def test_bad_lines_between_good_ones_do_not_break_up_the_chunks(tmp_path):
    lines = [line for number in range(50) for line in (changed(f1=str(number)), "x")]
    items = list(swf.read([written(tmp_path, "log.swf", *lines)]))
    (chunk,) = [item for item in items if isinstance(item, Chunk)]
    assert chunk.first_row.tolist() == list(range(1, 100, 2))
    assert len(items) == 52
    assert items[-1] == Lines("log.swf", num_lines=100, num_blank=0, num_comments=0)


def test_a_relative_clock_counts_from_the_origin_given(tmp_path):
    path = written(tmp_path, "log.swf", "; MaxProcs: 100", JOB)
    assert collect(swf, [path]).rows["requests"][0]["arrival"] == at(50)
    origin = datetime(1996, 9, 23, 12, tzinfo=UTC)
    arrival = collect(swf, [path], origin).rows["requests"][0]["arrival"]
    assert arrival == datetime(1996, 9, 23, 12, 0, 50, tzinfo=UTC)
    assert swf.facts([path])["clock"] == "relative"


def test_submit_times_that_are_plainly_dates_are_dates(tmp_path):
    path = written(tmp_path, "log.swf", "; MaxProcs: 100", changed(f2="1356996147"))
    found = collect(swf, [path], datetime(1996, 9, 23, tzinfo=UTC))
    assert found.rows["requests"][0]["arrival"] == datetime(2012, 12, 31, 23, 22, 27, tzinfo=UTC)
    assert swf.facts([path])["clock"] == "absolute"


def test_waits_of_a_simulator_are_not_history(tmp_path):
    path = written(
        tmp_path, "easy-sjbf.swf", "; Computer: Pyss Simulator (6a177b9 2015)", "; MaxProcs: 100", JOB
    )
    facts = swf.facts([path])
    assert "Pyss Simulator" in facts["limits"]["true_waits"]
    assert facts["policy"] == "easy-sjbf"
    assert "true_waits" not in swf.facts([written(tmp_path, "log.swf", *HEADER, JOB)])["limits"]


def test_gzip_reads_as_plain_and_a_folder_as_its_file(tmp_path):
    plain = collect(swf, [written(tmp_path, "log.swf", *HEADER, JOB)])
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "log.swf.gz").write_bytes(gzip.compress((tmp_path / "log.swf").read_bytes()))
    assert collect(swf, [folder]) == plain


def test_broken_gzip_is_an_error_of_the_whole_file(tmp_path):
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress("\n".join([*HEADER, *[JOB] * 500]).encode())[:-20])
    with pytest.raises(FormatError, match="compressed data is broken"):
        collect(swf, [path])


def test_several_logs_at_once_are_refused(tmp_path):
    written(tmp_path, "a.swf", JOB)
    written(tmp_path, "b.swf", JOB)
    with pytest.raises(FormatError, match=r"a\.swf, b\.swf"):
        swf.data_files([tmp_path])


def test_missing_paths_and_empty_folders_are_named(tmp_path):
    with pytest.raises(FormatError, match=r"nowhere\.swf"):
        swf.data_files([tmp_path / "nowhere.swf"])
    with pytest.raises(FormatError, match=r"\.swf, \.swf\.gz"):
        swf.data_files([tmp_path])
