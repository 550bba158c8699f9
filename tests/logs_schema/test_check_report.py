import json
from datetime import UTC, datetime

import pytest

from logs_schema import NODES, REQUESTS, Archive, ArchiveError, ArchiveWriter
from logs_schema.capabilities import percent
from logs_schema.check import capabilities_of, check_archive, render
from logs_schema.check_report import in_digits
from logs_schema.formats.reading import tabulate
from logs_schema.tables import DEPLOYMENT_SAMPLES

DAY_S = 86_400
START = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
NODE = {
    "node_id": "n1",
    "node_class": "small",
    "site": "s",
    "tier": "edge",
    "cpu_cores": 8.0,
    "memory_gib": None,
}


def request(number, arrival_s, **changes):
    """A request that starts at once, runs for 100 s and asked for 200 s on 4 of the node's 8 cores."""
    row = {
        "request_id": str(number),
        "arrival": START + arrival_s,
        "site": "s",
        "agent": "a",
        "service": None,
        "cpu_cores": 4.0,
        "memory_gib": 1.0,
        "gpus": None,
        "requested_run_s": 200.0,
        "deadline_s": None,
        "candidates": None,
        "offered_node": "n1",
        "propensity": None,
        "start": START + arrival_s,
        "finish": START + arrival_s + 100,
        "run_s": None,
        "status": "completed",
        "ran_node": "n1",
        "ran_nodes": None,
    }
    return row | {
        name: START + value if name in ("start", "finish") and value else value
        for name, value in changes.items()
    }


def checked(folder, requests, *, nodes=(NODE,), rejects=0, facts=None, rule="field_count"):
    with ArchiveWriter(folder / "archive", facts=facts or {}) as writer:
        if nodes:
            writer.write("nodes", tabulate(NODES, list(nodes)), source="nodes.csv")
        if requests:
            writer.write("requests", tabulate(REQUESTS, requests), source="log.csv")
        for row in range(rejects):
            writer.reject("requests", rule, "log.csv", 1000 + row, "?")
    report = check_archive(folder / "archive")
    assert capabilities_of(Archive(folder / "archive")) == report.capabilities
    return report


def capability(report, name):
    return next(line for line in report.capabilities if line.name == name)


def test_a_clean_log_has_no_warnings(tmp_path):
    report = checked(tmp_path, [request(n, n * DAY_S) for n in range(4)] + [request(9, 3 * DAY_S + 100)])
    assert report.usable
    assert report.warnings == ()
    assert report.timing.num_late == 1  # as of every log that tells ends: no warning
    assert [(line.resource, line.num_places, line.largest_share) for line in report.capacities] == [
        ("cpu_cores", 1, 0.5)
    ]


@pytest.mark.parametrize(("rejects", "told"), [(2, False), (57, True)])
def test_an_archive_of_which_most_was_left_out_on_purpose_is_usable_and_the_verdict_says_it(
    tmp_path, rejects, told
):
    report = checked(
        tmp_path, [request(n, n * DAY_S) for n in range(3)], rejects=rejects, rule="other_row:JobID"
    )
    assert report.usable
    verdict = render(report, width=120, colour=False).partition("Tables")[0]
    assert ("requests: 95 % of the rows were left out" in verdict) == told


def test_too_many_cores_at_once_are_a_warning_that_names_the_node(tmp_path):
    report = checked(tmp_path, [request(n, n) for n in range(3)])
    over = report.capacities[0].over
    assert [(place.place, place.peak, place.capacity) for place in over] == [("n1", 12.0, 8.0)]
    assert any("worst n1 with 12 of 8" in warning for warning in report.warnings)
    assert [in_digits(value) for value in (1 / 3, 4392.0, 281_088.0)] == ["0.33333", "4,392", "281,088"]
    assert report.usable


def test_shares_that_were_rounded_are_not_too_many(tmp_path):
    report = checked(tmp_path, [request(n, n, cpu_cores=8.007 / 3) for n in range(3)])
    assert not report.capacities[0].over


def test_requests_without_nodes_are_held_against_their_site(tmp_path):
    nodes = [NODE, NODE | {"node_id": "n2"}]
    nowhere = [request(n, n, ran_node=None, offered_node=None) for n in range(3)]
    report = checked(tmp_path, nowhere, nodes=nodes)
    line = report.capacities[0]
    assert (line.kind, line.num_places, line.largest_share, line.over) == ("site", 1, 0.75, ())


def test_nodes_that_the_inventory_does_not_know_are_named(tmp_path):
    report = checked(tmp_path, [request(1, 0, ran_node="n7")])
    assert report.unknown_nodes == ("n7",)
    assert any("n7" in warning for warning in report.warnings)


def test_requests_at_sites_that_no_node_is_of_are_named(tmp_path):
    (warning,) = checked(tmp_path, [request(1, 0, site="cluster")]).warnings
    assert "no node is of a site where requests arrive (cluster); the inventory's sites are s:" in warning


def test_decisions_and_candidates_that_the_inventory_does_not_know_are_named(tmp_path):
    row = request(1, 0, offered_node="n7", candidates=["n1", "small", "n1;n2"])
    report = checked(tmp_path, [row, request(2, 200, candidates=["n1"])])
    said, elsewhere, offered, allowed = report.warnings
    assert (
        "50% of the requests of 2020-01-01 that name a node name one that is not in the inventory (n7)"
        in said
    )
    assert "50% of the requests of 2020-01-01 ran on another node (ran_node)" in elsewhere
    assert "offered to nodes that are not in the inventory: n7" in offered
    assert "candidates are no nodes (or classes of nodes) of the inventory: n1;n2;" in allowed


def test_overruns_and_unfinished_requests_are_counted(tmp_path):
    rows = [
        request(1, 0, finish=500),
        request(2, 600, finish=None, status="running"),
        request(3, 900, start=None, finish=None, run_s=300.0),
        request(4, 5000, requested_run_s=None),
        request(5, 6000, requested_run_s=0.0),
    ]
    timing = checked(tmp_path, rows).timing
    assert (timing.num_overruns, timing.num_with_request, timing.num_unfinished) == (2, 2, 2)
    assert timing.largest_overrun == 2.5


def test_a_finish_in_the_last_year_of_the_calendar_is_counted(tmp_path):
    never_s = datetime(9999, 12, 31, tzinfo=UTC).timestamp() - START
    assert checked(tmp_path, [request(1, 0, finish=never_s)]).timing.largest_overrun > 1e9


def write_samples(folder, rows):
    with ArchiveWriter(folder / "archive") as writer:
        writer.write("deployment_samples", tabulate(DEPLOYMENT_SAMPLES, rows), source="made")


def first_warning(folder, rows):
    write_samples(folder, rows)
    return check_archive(folder / "archive").warnings[0]


def test_deployments_that_use_many_times_their_grant_are_named(tmp_path):
    rows = [
        {"time": 60 * place, "interval_s": 60.0, "deployment": name, "cpu_cores": 1.0, "cpu_cores_used": used}
        for place, (name, used) in enumerate(
            [("cart", 0.5), ("cart", 1.2), ("search", 250.0), ("search", None)]
        )
    ]
    assert (
        "cpu_cores_used is more than 1.5 times cpu_cores in 1 of 3 rows, at most 250 times (search)"
        in first_warning(tmp_path, rows)
    )


def test_response_times_that_look_like_milliseconds_are_named(tmp_path):
    rows = [
        {
            "time": 60 * place,
            "interval_s": 60.0,
            "deployment": "cart",
            "response_s": 0.2,
            "response_p95_s": tail,
        }
        for place, tail in enumerate([250.0, 310.0, 9.0, None])
    ]
    warning = first_warning(tmp_path, rows)
    assert warning == "response_p95_s is above 10 s in 2 of 3 rows, at most 310: is it in seconds?"


def test_answers_without_replicas_are_named(tmp_path):
    seen = [("cart", 0, 3.0, 0.2), ("cart", 1, 3.0, 0.2), ("old", 0, 0.0, None), ("old", 0, 1.0, None)]
    rows = [
        {"time": 60 * place, "interval_s": 60.0, "deployment": name, "num_replicas": replicas,
         "request_rate_per_s": rate, "response_s": response_s}
        for place, (name, replicas, rate, response_s) in enumerate([*seen, ("gateway", None, 3.0, 0.3)])
    ]  # fmt: skip
    warning = first_warning(tmp_path, rows)
    assert warning.startswith("num_replicas is 0 in 1 row in which requests were answered (cart)")


def test_memory_that_looks_like_bytes_is_named(tmp_path):
    (warning,) = checked(tmp_path, [request(1, 0, memory_gib=4.0 * 2**30), request(2, 200)]).warnings
    assert "memory_gib is above 1,048,576 GiB in 1 of 2 requests, at most 4.295e+09: is it in GiB?" in warning


def test_deadlines_of_another_unit_are_named(tmp_path):
    """In milliseconds, and in minutes; those in seconds are not, however late some requests are."""
    rows = [request(number, number, finish=number + 60) for number in range(1, 6)]

    def told(times: float, folder: str) -> list[str]:
        some = [row | {"deadline_s": times * 60} for row in rows[1:]]
        return [
            said for said in checked(tmp_path / folder, [rows[0], *some]).warnings if "deadline_s" in said
        ]

    assert told(2_000.0, "a") == [
        "deadline_s is over 200 times what passed from arrival to finish, of 4 of 4 requests: is it in seconds?"
    ]
    assert "under 1/20 of" in told(1 / 30, "b")[0]
    assert told(2.0, "c") == told(0.5, "d") == []


def test_late_is_after_the_last_arrival_of_all(tmp_path):
    rows = [
        request(1, 0, finish=10 * DAY_S),
        request(2, DAY_S, finish=9 * DAY_S),
        request(3, 9 * DAY_S, finish=9 * DAY_S),
    ]
    assert checked(tmp_path, rows).timing.num_late == 1


def test_quarantine_and_duplicates_are_counted_by_rule(tmp_path):
    rows = [request(n, n * 1000) for n in range(20)] + [request(3, 99), request(50, 0, cpu_cores=-1.0)]
    report = checked(tmp_path, rows, rejects=2)
    assert report.tables["requests"].rules == {"below:cpu_cores": 1, "duplicate_key": 1, "field_count": 2}
    assert report.num_duplicates == 1
    tables = report.to_json()["tables"]
    assert (tables["requests"]["rows"], tables["requests"]["quarantined"]) == (20, 4)
    assert report.usable


def test_what_a_broken_rule_asks_for_is_told_with_its_first_row(tmp_path):
    rows = [request(n, n * 1000) for n in range(20)]
    rows += [
        request(50, 0, status="SUCCESS"),
        request(51, 0, status="SUCCESS"),
        request(52, 0, cpu_cores=-1.0),
    ]
    found = "\n".join(checked(tmp_path, rows, rejects=1).warnings)
    assert "not_allowed:status, first in log.csv, row 21: " in found
    assert "required: completed, failed" in found
    assert "below:cpu_cores, first in log.csv, row 23: " in found
    assert "required: at least 0" in found
    assert "field_count, first in log.csv, row 1000: ?; required: as many fields" in found
    assert found.count("first in") == 3


def test_brackets_and_colons_of_messages_and_names_are_shown_as_they_are(tmp_path):
    report = checked(tmp_path, [request(1, 0)], facts={"notes": ["origin under [log], node :warning:[red]"]})
    assert "origin under [log], node :warning:[red]" in render(report)


def test_a_log_mostly_in_quarantine_is_not_usable(tmp_path):
    report = checked(tmp_path, [request(n, n * 1000) for n in range(7)], rejects=2)
    assert not report.usable
    assert report.problems == (
        "requests: 22 % of the rows are in quarantine (allowed: 20 %); look at their rules and mend the log",
    )


def test_a_log_without_requests_is_not_usable(tmp_path):
    report = checked(tmp_path, [])
    assert not report.usable
    assert "no requests" in report.problems[0]
    text = render(report, width=100, colour=False)
    assert "not usable" in text
    assert "for it has no requests: no decisions" in text
    assert "✗ no" not in text
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["days"]["first"] is None


def test_capabilities_follow_the_columns(tmp_path):
    rows = [
        request(n, n * DAY_S, agent="a" if n else None, deadline_s=5.0, candidates=["n1"] if n < 2 else None)
        for n in range(4)
    ]
    report = checked(tmp_path, rows)
    answers = {line.name: (line.answer, line.fraction) for line in report.capabilities}
    assert answers["agents"] == ("partial", 0.75)
    assert answers["deadlines"] == ("yes", 1.0)
    assert answers["candidates"] == ("partial", 0.5)
    assert answers["propensities"] == ("no", 0.0)
    assert answers["node_capacities"][0] == "yes"
    assert answers["tiers"] == ("no", 0.0)
    assert answers["days"] == ("partial", 0.5)
    assert answers["replicas"] == ("no", 0.0)
    assert capability(report, "propensities").reason == "not in the log"


def test_run_times_count_where_the_start_is_unknown_and_unknown_outcomes_do_not(tmp_path):
    rows = [request(1, 0, start=None, finish=None, run_s=5.0, status="unknown"), request(2, 1)]
    report = checked(tmp_path, rows)
    assert capability(report, "run_times").answer == "yes"
    assert capability(report, "true_waits").fraction == 0.5
    assert capability(report, "outcomes").fraction == 0.5


def test_a_finish_without_a_start_tells_no_run_time(tmp_path):
    rows = [request(1, 0, start=None), request(2, 1)]
    assert capability(checked(tmp_path, rows), "run_times").fraction == 0.5


def test_the_importers_limits_overrule_filled_columns(tmp_path):
    report = checked(tmp_path, [request(1, 0)], facts={"limits": {"true_waits": "simulated"}})
    line = capability(report, "true_waits")
    assert (line.answer, line.fraction, line.reason) == ("no", 1.0, "simulated")


def test_pools_of_unnamed_machines_are_counted(tmp_path):
    nodes = [NODE | {"node_id": name, "virtual": True} for name in ("n1", "n2", "n3")]
    report = checked(tmp_path, [request(1, 0)], nodes=nodes)
    assert capability(report, "node_capacities").reason == "3 pools of unnamed machines, memory unknown"


@pytest.mark.parametrize(
    ("without", "answer", "fraction"), [(("n1",), "partial", 0.5), (("n1", "n2"), "no", 0.0)]
)
def test_nodes_of_no_cores_have_no_known_capacity(tmp_path, without, answer, fraction):
    nodes = [NODE | {"node_id": name, "cpu_cores": 0.0 if name in without else 8.0} for name in ("n1", "n2")]
    report = checked(tmp_path, [request(1, 0)], nodes=nodes)
    line = capability(report, "node_capacities")
    assert (line.answer, line.fraction) == (answer, fraction)
    assert any("no node has any cores" in one for one in report.warnings) == (answer == "no")
    assert line.reason.endswith(f"{len(without)} with 0 cores")


def test_two_sites_have_tiers(tmp_path):
    nodes = [NODE, NODE | {"node_id": "c", "site": "cloud", "tier": "cloud"}]
    report = checked(tmp_path, [request(1, 0)], nodes=nodes)
    assert capability(report, "tiers").reason == "2 sites, tiers cloud and edge"


def test_what_is_no_archive_is_an_error(tmp_path):
    with pytest.raises(ArchiveError):
        check_archive(tmp_path)


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.425, "42 %"),
        (0.9958, "99.6 %"),
        (0.9999, "99.9 %"),
        (0.0001, "under 0.1 %"),
    ],
)
def test_percentages_never_read_as_none_or_all_when_they_are_not(fraction, text):
    assert percent(fraction) == text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_the_terminal_and_says_what_the_report_knows(tmp_path, width):
    report = checked(
        tmp_path, [request(n, n) for n in range(3)], rejects=1, facts={"format": "swf", "notes": ["A note."]}
    )
    text = render(report, width=width, colour=False)
    assert max(len(line) for line in text.splitlines()) <= width
    for piece in ("not usable", "field_count", "cpu_cores", "How the log was read", "A note.", "150.0 %"):
        assert piece in text
    assert "\x1b[" not in text
    assert "\x1b[" in render(report, width=width, colour=True)


def test_samples_of_deployments_are_read_once_for_all_that_is_odd(tmp_path, monkeypatch):
    rows = [
        {"time": 60 * place, "interval_s": 60.0, "deployment": "cart", "num_replicas": 0, "request_rate_per_s": 2.0,
         "response_s": 200.0, "response_p95_s": 250.0, "response_p99_s": 300.0, "cpu_cores": 1.0,
         "cpu_cores_used": 9.0, "memory_gib": 1.0, "memory_gib_used": 7.0}
        for place in range(3)
    ]  # fmt: skip
    write_samples(tmp_path, rows)
    read, scan = [], Archive.scan

    def counting(archive, table, **options):
        read.append(table)
        return scan(archive, table, **options)

    monkeypatch.setattr(Archive, "scan", counting)
    told = [warning.split()[0] for warning in check_archive(tmp_path / "archive").warnings]
    assert told == [
        "cpu_cores_used", "memory_gib_used", "response_s", "response_p95_s", "response_p99_s", "num_replicas", "no",
    ]  # fmt: skip
    assert read.count("deployment_samples") == 1
