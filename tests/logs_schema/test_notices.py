"""What a person has to know of a log at once: runs of which the log lacks the start or the node."""

import pytest

from logs_schema.notices import _spelt_otherwise
from tests.logs_schema.test_check_report import START, checked, request


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"start": None}, True),
        ({"start": None, "run_s": 90.0}, False),
        ({"start": None, "status": "dropped"}, False),
        ({}, False),
    ],
)
def test_ends_of_which_no_start_is_known_are_named(tmp_path, changes, says):
    report = checked(tmp_path, [request(number, 200 * number, **changes) for number in range(3)])
    named = [line for line in report.warnings if "that ended have no start" in line]
    assert len(named) == says
    assert not says or named[0].startswith("100% of the requests of 2020-01-01")


@pytest.mark.parametrize(("num_zero", "says"), [(0, False), (1, True)])
def test_runs_that_end_as_they_start_are_named(tmp_path, num_zero, says):
    rows = [request(number, 200 * number) for number in range(4)]
    rows = [row | ({"finish": row["start"]} if number < num_zero else {}) for number, row in enumerate(rows)]
    named = [line for line in checked(tmp_path, rows).warnings if "end as they start" in line]
    assert len(named) == says
    assert not says or named[0].startswith("25% of the runs of 2020-01-01")


@pytest.mark.parametrize(
    ("step_s", "run_s", "num", "told"),
    [
        (60, 120, 60, 60),
        (60, 1200, 60, 0),
        (60, 120, 9, 0),
        (0.5, 2, 60, 0),
        (1, 2, 60, 1),
        (3600, 7200, 60, 3600),
    ],
)
def test_a_clock_that_is_coarse_for_its_runs_is_named(tmp_path, step_s, run_s, num, told):
    times = [START + number % 2 * step_s for number in range(num)]
    rows = [request(n, 0, arrival=at, start=at, finish=at + run_s) for n, at in enumerate(times)]
    named = [line for line in checked(tmp_path, rows).warnings if "counts in steps of" in line]
    assert len(named) == bool(told)
    assert not told or f"steps of {told:,} s, and half of its runs take {run_s:,} s" in named[0]


@pytest.mark.parametrize(("num_nowhere", "says"), [(0, False), (1, True), (4, False)])
def test_runs_on_a_node_that_is_not_named_are_named_where_others_are(tmp_path, num_nowhere, says):
    nowhere = {"offered_node": None, "ran_node": None}
    rows = [request(number, 200 * number, **(nowhere if number < num_nowhere else {})) for number in range(4)]
    named = [line for line in checked(tmp_path, rows).warnings if "name no node" in line]
    assert len(named) == says
    assert not says or named[0].startswith("25% of the requests of 2020-01-01 that began")


@pytest.mark.parametrize(
    ("lost", "says"), [([], False), (["rejected"], True), (["dropped", "rejected"], True)]
)
def test_requests_that_no_node_refused_or_gave_up_are_named(tmp_path, lost, says):
    ends = [
        {"status": one, "offered_node": None, "ran_node": None, "start": None, "finish": None} for one in lost
    ]
    ends += [{"status": "rejected", "ran_node": None, "start": None, "finish": None}]
    rows = [request(n, 200 * n, **(ends[n] if n < len(ends) else {})) for n in range(4)]
    named = [line for line in checked(tmp_path, rows).warnings if "were rejected or dropped" in line]
    assert len(named) == says
    assert not says or named[0].startswith(f"{len(lost) / 4:.0%} of the requests of 2020-01-01 were")


@pytest.mark.parametrize(("num_without", "says"), [(0, False), (1, True), (4, True)])
def test_requests_that_do_not_say_how_many_cores_they_take_are_named(tmp_path, num_without, says):
    rows = [
        request(number, 200 * number, **({"cpu_cores": None} if number < num_without else {}))
        for number in range(4)
    ]
    named = [line for line in checked(tmp_path, rows).warnings if "count as one core each" in line]
    assert len(named) == says
    assert not says or named[0].startswith(
        f"{num_without / 4:.0%} of the requests of 2020-01-01 that name a node do"
    )


@pytest.mark.parametrize(
    ("foreign", "known", "said"),
    [
        ({"N 1", "n2"}, ["n1", "m2"], "N 1 as n1"),
        ({"n1.example.org"}, ["n1"], "n1.example.org as n1"),
        ({"n1"}, ["N1.example.org"], "n1 as N1.example.org"),
        ({"10.0.0.2"}, ["10.0.0.1"], ""),
        ({"n3"}, ["n1"], ""),
    ],
)
def test_nodes_that_an_inventory_spells_otherwise_are_named(foreign, known, said):
    text = _spelt_otherwise(foreign, known)
    assert text.endswith(said)
    assert bool(text) == bool(said)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, True),
        ({"queue": ("low", "high")}, False),
        ({"cpu_cores": (2.0, 1.0)}, False),
        ({"wait": 0}, False),
    ],
    ids=["the last comes first", "by queue", "by size", "in order"],
)
def test_requests_that_are_overtaken_by_later_ones_like_them_are_named(tmp_path, changes, says):
    """Of every two requests the second one begins first, unless all begin as they come."""
    rows, wait_s = [], changes.pop("wait", 100)
    for number in range(120):
        second = number % 2
        arrival, others = (
            START + 300 * (number // 2) + 10 * second,
            {k: v[second] for k, v in changes.items()},
        )
        start = arrival + (20 if second else 20 + wait_s)
        rows.append(request(number, 0, arrival=arrival, start=start, finish=start + 50, **others))
    named = [line for line in checked(tmp_path, rows).warnings if "began after later ones" in line]
    assert len(named) == says
    assert not says or named[0].startswith("50% of the requests of 2020-01-01")
