"""What a mapping of requests says that texts, lists and numbers of a log stand for."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logs_schema.archive import Archive
from logs_schema.broken_rules import first_broken
from logs_schema.errors import FormatError
from logs_schema.formats.reading import BadRow
from logs_schema.formats.request_values import clock_s, quantity
from logs_schema.importing import import_log
from logs_schema.mapping import one_by_one
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_requests import ARRIVAL, EXAMPLES, SACCT, imported, requests_in


def test_a_list_adds_up_over_entries_that_say_nothing_and_amounts_per_core(tmp_path: Path) -> None:
    jobs = [{"t": 10, "g": ["1", "x", "1"], "m": ["1Gc", "1Gc"], "c": 4, "exit": 0}, {"t": 11, "exit": 2}]
    written(tmp_path, "jobs.jsonl", *map(json.dumps, jobs))
    columns = (
        '[columns.gpus]\nsource = "g"\nvalues = { x = "" }',
        '[columns.memory_gib]\nsource = "m"\nunit = "binary_quantity"',
        '[columns.cpu_cores]\nsource = "c"',
        '[only]\nexit = "[01]"',
    )
    written(tmp_path, "map.toml", ARRIVAL + "\n".join(columns))
    report = import_log("requests_csv", [tmp_path], tmp_path / "a")
    (job,) = requests_in(tmp_path / "a").values()
    assert (job["gpus"], job["memory_gib"]) == (2.0, 8.0)
    assert report.quarantined["requests"] == {"other_row:exit": 1}


def test_no_memory_asked_of_slurm_is_all_of_the_node(tmp_path: Path) -> None:
    slurm, lines = (EXAMPLES / "slurm.toml").read_text(), [SACCT[0]]
    for number, memory in enumerate(("4G", "0", "0n", "0Mc", "500Mc")):
        lines.append(f"{number}|" + SACCT[1].partition("|")[2].replace("4000Mc", memory))
    _, rows = imported(tmp_path, slurm, *lines)
    assert [row.get("memory_gib") for row in rows.values()] == [4.0, None, None, None, 8 * 500 / 1024]


@pytest.mark.parametrize(
    ("column", "text", "name", "meant"),
    [
        ('[columns.gpus]\nsource = "x"\nvalues = { no = 0, yes = 2 }', "no", "gpus", 0.0),
        ('[columns.service]\nsource = "x"\nvalues = { no = 1 }', "no", "service", "1"),
        ('[columns.accepted]\nsource = "x"\nvalues = { no = false }', "no", "accepted", False),
        ('[columns.service]\nsource = "x"\npattern = "job-(\\\\d+)?"', "job-", "service", None),
        ('[columns.gpus]\nsource = "x"\nvalues = { yes = 2 }\nother = "0"', "", "gpus", 0.0),
        ('[columns.gpus]\nsource = "x"\npattern = "g=(.)"\nother = "0"', "cpu=8", "gpus", 0.0),
        ('[columns.service]\nsource = "x"\nvalues = { a = "b" }\nother = ""', "", "service", None),
    ],
)
def test_what_a_text_stands_for(tmp_path: Path, column: str, text: str, name: str, meant: object) -> None:
    _, rows = imported(tmp_path, ARRIVAL + column, "t,x", f"10,{text}")
    assert [row.get(name) for row in rows.values()] == [meant]


def test_what_all_other_texts_mean_stands_beside_the_texts_that_mean_something_else(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"other stands alone\n.*gpus"):
        imported(tmp_path, ARRIVAL + '[columns.gpus]\nsource = "x"\nother = "0"', "t,x", "10,1")


def test_a_scale_and_an_origin_count_for_instants_as_they_are_meant(tmp_path: Path) -> None:
    _, rows = imported(tmp_path, ARRIVAL + "scale = 60.0\n", "t,x", "28488241,a")
    assert [row["arrival"] for row in rows.values()] == [datetime(2024, 3, 1, 12, 1, tzinfo=UTC)]
    (tmp_path / "b").mkdir()
    mapping = ARRIVAL + 'pattern = "T\\\\+(\\\\d+)s"\n'
    _, rows = imported(tmp_path / "b", mapping, "t,x", "T+60s,a", origin=datetime(2024, 1, 1))
    assert [row["arrival"] for row in rows.values()] == [datetime(2024, 1, 1, 0, 1, tzinfo=UTC)]


def test_a_start_follows_from_finish_and_run_time(tmp_path: Path) -> None:
    columns = "[columns.finish]\n[columns.run_s]\n[columns.status]\n"
    lines = (
        "100,160,50,failed",
        "100,160,0,killed",
        "100,160,0,completed",
        "100,,50,running",
        "100,160,,failed",
    )
    _, rows = imported(tmp_path, ARRIVAL + columns, "t,finish,run_s,status", *lines)
    starts = [row.get("start") for row in rows.values()]
    known = [None if start is None else start.timestamp() for start in starts]
    assert dict(zip(rows, known, strict=True)) == {
        "log.csv:2": 110.0, "log.csv:3": None, "log.csv:4": 160.0, "log.csv:5": None, "log.csv:6": None
    }  # fmt: skip


def test_what_was_killed_as_it_started_on_no_node_never_started(tmp_path: Path) -> None:
    columns = (
        "[columns.request_id]\n[columns.start]\n[columns.finish]\n[columns.status]\n[columns.ran_node]\n"
    )
    lines = ("10,a,20,20,killed,", "10,b,20,20,killed,n1", "10,c,20,20,completed,", "10,d,20,21,killed,")
    _, rows = imported(tmp_path, ARRIVAL + columns, "t,request_id,start,finish,status,ran_node", *lines)
    assert {name: "start" in row for name, row in rows.items()} == {
        "a": False,
        "b": True,
        "c": True,
        "d": True,
    }


def test_a_running_request_gives_way_where_no_end_is_logged(tmp_path: Path) -> None:
    columns = "[columns.request_id]\n[columns.status]\n"
    lines = ("100,1,running", "100,1,completed", "100,2,unknown", "100,2,failed", "100,2,killed")
    report, rows = imported(tmp_path, ARRIVAL + columns, "t,request_id,status", *lines)
    assert {name: row["status"] for name, row in rows.items()} == {"1": "completed", "2": "failed"}
    assert report.superseded["requests"] == {"end_told_elsewhere": 2}
    assert report.quarantined["requests"] == {"duplicate_key": 1}


def test_files_of_one_name_in_several_folders_give_requests_of_their_own(tmp_path: Path) -> None:
    for day in ("01", "02"):
        (tmp_path / day).mkdir()
        written(tmp_path / day, "jobs.csv", "t", f"17118396{day}", "never")
    files = [tmp_path / "01", tmp_path / "02", written(tmp_path, "map.toml", ARRIVAL)]
    alone = written(tmp_path, "others.csv", "t", "1711839600")
    report = import_log("requests_csv", [*files, alone], tmp_path / "a")
    assert report.quarantined["requests"] == {"not_an_instant:arrival": 2}
    assert set(requests_in(tmp_path / "a")) == {"01/jobs.csv:2", "02/jobs.csv:2", "others.csv:2"}
    archive = Archive(tmp_path / "a")
    bad = [row["source"] for batch in archive.quarantine() for row in batch.to_pylist()]
    assert bad == ["01/jobs.csv", "02/jobs.csv"]
    assert sorted(archive.made_from) == ["01/jobs.csv", "02/jobs.csv", "map.toml", "others.csv"]
    import_log("requests_csv", [*files, alone], tmp_path / "b", run_tasks=one_by_one)
    assert Archive(tmp_path / "b").content_hash == archive.content_hash
    import_log("requests_csv", [tmp_path / "02", tmp_path / "map.toml"], tmp_path / "c")
    assert set(requests_in(tmp_path / "c")) == {"jobs.csv:2"}


@pytest.mark.parametrize("name", ["map.toml", "requests.csv"])
def test_bytes_that_are_no_utf_8_are_named(tmp_path, name):
    mapped = name == "map.toml"
    if mapped:
        written(tmp_path, name, '[columns.arrival]\nsource = "arrival"\n[columns.agent]\nsource = "agent"')
    log = tmp_path / "requests.csv"
    lines = "request_id,arrival,site,status,agent\n1,2024-03-01,a,unknown,André\n2,2024-03-01,a,unknown,Bo\n"
    for coding, notices in (
        ("utf-8", ()),
        (
            "latin-1",
            (
                r"bytes that are no UTF-8, in requests.csv ('unknown,Andr\xe9'), were read as they are shown here, in "
                "names, too; convert the log first, for example with iconv -f latin1 -t utf-8",
            ),
        ),
    ):
        log.write_bytes(lines.encode(coding))
        paths = [log, tmp_path / name] if mapped else [log]
        kind = "requests_csv" if mapped else "native"
        report = import_log(kind, paths, tmp_path / "archive", replace=True)
        assert tuple(one for one in report.notices if "UTF-8" in one) == notices


def test_without_quotes_of_its_own_a_log_may_have_names_that_hold_them(tmp_path: Path) -> None:
    service = '[columns.service]\nsource = "n"\n'
    lines = "t\tn", *(f"{t}\t{name}" for t, name in enumerate(['"run|1', '"a" b', "'c'"]))
    for quotes, expected in (("true", ["'c'"]), ("false", ['"run|1', '"a" b', "'c'"])):
        folder = tmp_path / quotes
        folder.mkdir()
        mapping = f'separator = "\\t"\nquotes = {quotes}\n' + ARRIVAL + service
        _, rows = imported(folder, mapping, *lines)
        assert [row["service"] for row in rows.values()] == expected


def test_keys_of_json_may_have_points_and_truth_values_are_written_as_in_json(tmp_path: Path) -> None:
    labels = {"app": "x", "app.kubernetes.io/name": "cart"}
    pods = [
        {"t": 10, "metadata": {"labels": labels}, "k8s.node": {"name": "n1"}, "spot": True},
        {"t": 11, "spot": False},
    ]
    written(tmp_path, "jobs.jsonl", *map(json.dumps, pods))
    columns = (
        '[columns.service]\nsource = "metadata.labels.app.kubernetes.io/name"',
        '[columns.agent]\nsource = "metadata.labels.app"',
        '[columns.ran_node]\nsource = "k8s.node.name"',
        '[columns.queue]\nsource = "spot"\nvalues = { true = "spot" }\nother = "on demand"',
        '[only]\nspot = "true"',
    )
    written(tmp_path, "map.toml", ARRIVAL + "\n".join(columns))
    report = import_log("requests_csv", [tmp_path], tmp_path / "a")
    assert report.quarantined["requests"] == {"other_row:spot": 1}
    (pod,) = requests_in(tmp_path / "a").values()
    assert (pod["service"], pod["agent"], pod["ran_node"], pod["queue"]) == ("cart", "x", "n1", "spot")


@pytest.mark.parametrize(
    ("layout", "text", "hour"),
    [
        ("%Y-%m-%d %H:%M %Z", "2024-05-01 10:00 UTC", 10), ("%a %b %d %H:%M %Z %Y", "Wed May 1 10:00 GMT 2024", 10),
        ("%Y-%m-%d %H:%M %Z", "2024-05-01 10:00 CEST", None), ("%Y-%m-%d %H:%M %z", "2024-05-01 10:00 UTC", 10),
        ("%Y-%m-%dT%H:%M:%SZ", "2024-05-01T10:00:00Z", 10), ("%Y-%m-%d %H:%M UTC", "2024-05-01 10:00 UTC", 10),
        ("%Y-%m-%d %H:%M", "2024-05-01 10:00", 8), ("%b %d %Y %H:%M GMT%z", "May 01 2024 10:00 GMT+0100", 9),
        ("%Y-%m-%d %H:%M %z UTC", "2024-05-01 10:00 +0000 UTC", 10),
    ],
)  # fmt: skip
def test_a_zone_that_an_instant_names_counts(
    tmp_path: Path, layout: str, text: str, hour: int | None
) -> None:
    mapping = f'time_format = "{layout}"\ntime_zone = "Europe/Berlin"\n{ARRIVAL}'
    report, rows = imported(tmp_path, mapping, "t,x", f"{text},1")
    read = [datetime(2024, 5, 1, hour, tzinfo=UTC)] if hour else []
    assert [row["arrival"] for row in rows.values()] == read
    assert report.quarantined == ({} if hour else {"requests": {"not_an_instant:arrival": 1}})


def test_several_nodes_in_one_text_are_told_apart(tmp_path: Path) -> None:
    columns = "[columns.candidates]\n[columns.ran_nodes]\n[columns.ran_node]\nunit = 'hostlist'\n"
    lines = ("10,n1 | n2,n1|n2,n[1-2]", "11,n1,n1,n1", "12,,,", "13,n1||n2,,")
    report, rows = imported(tmp_path, ARRIVAL + columns, "t,candidates,ran_nodes,ran_node", *lines)
    assert report.quarantined["requests"] == {"empty_name:candidates": 1}
    both, one, none = rows.values()
    assert (both["candidates"], both["ran_nodes"], both["ran_node"]) == (["n1", "n2"], ["n1", "n2"], "n1")
    assert (one["candidates"], "ran_nodes" in one, "candidates" in none) == (["n1"], False, False)


def test_places_of_pbs_are_nodes_and_no_list_of_names(tmp_path: Path) -> None:
    columns = "[columns.ran_nodes]\nunit = 'exec_host'\n[columns.ran_node]\nsource = 'ran_nodes'\nunit = 'exec_host'\n"
    lines = ("10,n1/0*8+n2/0", "11,n1/0+n1/1", "12,n1", "13,n1/0+", "14,")
    report, rows = imported(tmp_path, ARRIVAL + columns, "t,ran_nodes", *lines)
    assert report.quarantined["requests"] == {"not_an_exec_host:ran_nodes": 1}
    both, one, bare, none = rows.values()
    assert (both["ran_nodes"], both["ran_node"]) == (["n1", "n2"], "n1")
    assert [(row["ran_node"], "ran_nodes" in row) for row in (one, bare)] == [("n1", False)] * 2
    assert "ran_node" not in none
    (tmp_path / "b").mkdir()
    report, rows = imported(
        tmp_path / "b", ARRIVAL + columns.replace("exec_host", "hostlist"), "t,ran_nodes", *lines[:1]
    )
    assert report.quarantined["requests"] == {"not_a_hostlist:ran_nodes": 1}


def test_a_request_ends_with_the_last_of_its_parts_and_has_no_end_while_it_runs(tmp_path: Path) -> None:
    columns = "[columns.request_id]\n[columns.status]\n[columns.finish]\nsource = 'parts.*.end'\n"
    parts = [{"end": 100}, {"end": 300}, {}, {"end": 200}]
    jobs = [
        {"t": 10, "request_id": name, "status": name, "parts": parts} for name in ("completed", "running")
    ]
    written(tmp_path, "jobs.jsonl", *map(json.dumps, jobs))
    written(tmp_path, "map.toml", ARRIVAL + columns)
    import_log("requests_csv", [tmp_path], tmp_path / "a")
    rows = requests_in(tmp_path / "a")
    assert (rows["completed"]["finish"].timestamp(), "finish" in rows["running"]) == (300.0, False)
    columns = "[columns.request_id]\n[columns.status]\n[columns.start]\n[columns.run_s]\n"
    lines = ("10,a,running,20,15", "10,b,failed,20,15")
    (tmp_path / "b").mkdir()
    _, rows = imported(tmp_path / "b", ARRIVAL + columns, "t,request_id,status,start,run_s", *lines)
    assert (rows["b"]["finish"].timestamp(), {"finish", "run_s"} & set(rows["a"])) == (35.0, set())


def test_small_letters_of_amounts_are_large_ones_but_for_parts_without_a_b() -> None:
    for text, mib in {"512mb": 512.0, "4gb": 4096.0, "2048kb": 2.0, "3m": 3.0, "1048576b": 1.0}.items():
        assert quantity(text, "x", "MiB", is_binary=True) == (mib, "")
    assert quantity("512mB", "x", "MiB", is_binary=False) == (512e6 / 2**20, "")
    assert quantity("2097152000m", "x", "MiB", is_binary=False) == (2.0, "")
    assert quantity("500m", "x", "cores", is_binary=True) == (0.5, "")
    with pytest.raises(BadRow):
        quantity("5nb", "x", "MiB", is_binary=False)


def test_lines_that_the_mapping_leaves_out_raise_no_doubts(tmp_path: Path) -> None:
    mapping = f"{ARRIVAL}[only]\nkind = 'E'\n"
    report, rows = imported(
        tmp_path, mapping, "t,kind", "queued,Q", "5,Q", "1700000000,E", capacity={"pool": 8.0}
    )
    assert (report.notices, len(rows), Archive(tmp_path / "a").facts["clock"]) == ((), 1, "absolute")


def test_a_log_of_one_pool_leaves_out_the_nodes_that_it_names(tmp_path: Path) -> None:
    columns = "[columns.start]\n[columns.offered_node]\n[columns.ran_node]\nunit = 'hostlist'\n[columns.ran_nodes]\n"
    lines = ("10,11,n1,n[1,n1|n2", "11,,n1,,")
    _, rows = imported(
        tmp_path, ARRIVAL + columns, "t,start,offered_node,ran_node,ran_nodes", *lines, capacity={"pool": 8.0}
    )
    ran, waits = rows.values()
    assert (ran["ran_node"], "offered_node" in ran, "ran_nodes" in ran, "ran_node" in waits) == (
        "pool",
        False,
        False,
        False,
    )
    assert "nodes that it names are left out" in Archive(tmp_path / "a").facts["notes"][-1]


def test_paths_at_which_no_line_has_anything_are_named(tmp_path: Path) -> None:
    jobs = [{"t": 10, "a": {"name": "x"}, "parts": [{"end": 20}]}, {"t": 11, "parts": []}]
    written(tmp_path, "jobs.jsonl", *map(json.dumps, jobs))
    paths = {"agent": "a.name", "queue": "a.nmae", "finish": "parts.*.end"}
    columns = [f"[columns.{name}]\nsource = '{path}'\n" for name, path in paths.items()]
    written(tmp_path, "map.toml", ARRIVAL + "".join(columns))
    report = import_log("requests_csv", [tmp_path], tmp_path / "a", capacity={"pool": 1.0})
    assert [notice for notice in report.notices if "anything at a.nmae: are" in notice]


def test_a_copy_of_a_log_without_ids_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "map.toml", ARRIVAL)
    for name, lines in {"a": ("t", "10"), "b": ("t", "11"), "hour-1": ("t",), "hour-2": ("t",)}.items():
        written(tmp_path, f"{name}.csv", *lines)
    assert import_log("requests_csv", [tmp_path], tmp_path / "one").rows["requests"] == 2
    written(tmp_path, "a (1).csv", "t", "10")
    with pytest.raises(FormatError, match=r"a\.csv holds the same lines as a \(1\)\.csv"):
        import_log("requests_csv", [tmp_path], tmp_path / "two")
    written(tmp_path, "map.toml", ARRIVAL + '[columns.request_id]\nsource = "t"\n')
    report = import_log("requests_csv", [tmp_path], tmp_path / "two")
    assert report.superseded["requests"] == {"end_told_elsewhere": 1}


def test_a_log_of_events_is_told_for_it_keeps_one_line_of_each_request(tmp_path: Path) -> None:
    status = 'source = "what"\nvalues = { submit = "waiting", start = "running", end = "completed" }'
    mapping = f'{ARRIVAL}[columns.request_id]\nsource = "job"\n[columns.status]\n{status}'
    begin_s = 1_709_294_460
    events = [
        f"{begin_s + 10 * job + at},{job},{what}"
        for job in range(9)
        for at, what in enumerate(("submit", "start", "end"))
    ]
    report, rows = imported(tmp_path, mapping, "t,job,what", *events)
    assert (len(rows), report.lines.superseded) == (9, 18)
    assert [one for one in report.notices if "of the first 9 requests 9 have several lines" in one]
    jobs = [f"{begin_s + job},{job},end" for job in range(10)]  # one of them was requeued, and runs
    (other := tmp_path / "other").mkdir()
    report, rows = imported(other, mapping, "t,job,what", *jobs, f"{begin_s + 60},3,start")
    assert (len(rows), [one for one in report.notices if "several lines" in one]) == (10, [])


def test_a_form_of_instants_without_a_year_is_refused_for_it_would_be_1900(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"time_format '%b %d %H:%M' cannot be read \(it names no year\)"):
        imported(tmp_path, f'time_format = "%b %d %H:%M"\n{ARRIVAL}', "t", "Mar 28 00:03")
    assert not (tmp_path / "a").exists()


def test_durations_as_databases_and_python_write_days() -> None:
    times = {
        "2 days 01:00:00": 176_400,
        "0 days 00:00:01.5": 1.5,
        "1 day, 0:00:01": 86_401,
        "3 day  10": 295_200,
    }
    assert {text: clock_s(text, "x") for text in times} == times
    with pytest.raises(BadRow, match="not_a_duration:x"):
        clock_s("-1 days 23:59:59", "x")


def test_texts_for_amounts_and_zeros_for_instants_are_told_with_what_to_write(tmp_path: Path) -> None:
    mapping = ARRIVAL + '[columns.start]\n[columns.cpu_cores]\nsource = "cores"\n'
    imported(tmp_path, mapping, "t,start,cores", "100,0,4", "100,110,>24", "100,110,8")
    archive = Archive(tmp_path / "a")
    told = list(first_broken(archive, {"requests": archive.quarantined("requests")}))
    assert [one for one in told if one.startswith("start_before_arrival") and 'values = { 0 = "" }' in one]
    assert [one for one in told if one.startswith("not_a_number:cpu_cores") and '">24" = "32"' in one]
    (tmp_path / "mended").mkdir()
    mapping = mapping.replace("start]", 'start]\nvalues = { 0 = "" }') + 'values = { ">24" = 32 }'
    report, rows = imported(
        tmp_path / "mended", mapping, "t,start,cores", "100,0,4", "100,110,>24", "100,110,8"
    )
    assert (len(rows), report.quarantined) == (3, {})
    assert [row.get("cpu_cores") for row in rows.values()] == [4.0, 32.0, 8.0]


def test_where_a_line_has_no_finish_it_follows_from_start_and_run_time_of_what_has_ended(
    tmp_path: Path,
) -> None:
    columns = "[columns.start]\n[columns.finish]\n[columns.run_s]\n[columns.status]\n"
    lines = ("100,110,,50,killed", "100,110,200,90,completed", "100,110,,0,waiting", "100,,,50,failed")
    _, rows = imported(tmp_path, ARRIVAL + columns, "t,start,finish,run_s,status", *lines)
    found = [(row.get("finish"), row.get("run_s")) for row in rows.values()]
    known = [(None if finish is None else finish.timestamp(), run_s) for finish, run_s in found]
    assert known == [(160.0, None), (200.0, None), (None, 0.0), (None, 50.0)]


@pytest.mark.parametrize(
    ("sites", "columns", "site"),
    [
        (("hall", "hall"), "", "hall"),  # a log of one place need not say so
        (("hall", "attic"), "", "cluster"),
        (("hall", "hall"), "[columns.site]\nconstant = 'attic'\n", "attic"),
    ],
)
def test_requests_without_a_site_are_of_the_only_one_that_nodes_have(
    tmp_path: Path, sites: tuple[str, str], columns: str, site: str
) -> None:
    nodes = (f"n{number},{of},pool,8" for number, of in enumerate(sites))
    paths = [
        written(tmp_path, "log.csv", "t", "10"),
        written(tmp_path, "map.toml", ARRIVAL + columns),
        written(tmp_path, "nodes.csv", "node_id,site,tier,cpu_cores", *nodes),
    ]
    report = import_log("requests_csv", paths, tmp_path / "a")
    assert [row["site"] for row in requests_in(tmp_path / "a").values()] == [site]
    assert any("no node is of a site where requests arrive" in said for said in report.notices) == (
        site not in sites
    )
