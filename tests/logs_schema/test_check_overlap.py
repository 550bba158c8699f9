"""Overlap of decisions: what was tried beside what was done, counted by hand."""

import pyarrow as pa
import pytest

from logs_schema.overlap import COLUMNS, Overlap

NODES = pa.table({"node_id": ["a1", "a2", "b1"], "node_class": ["a", "a", "b"]})
ALIKE = pa.table({"node_id": ["a1", "a2", "b1"], "node_class": ["a", "a", "a"]})


def overlap_of(rows, nodes=NODES):
    """The line for rows of (site, service or service/queue, node, how many), in two batches; every other node is one
    that a request ran on, whose offer the log does not name."""
    each = [
        (site, service, None if number % 2 else node, node if number % 2 else None)
        for site, service, node, count in rows
        for number in range(count)
    ]
    found = Overlap()
    for part in (each[::2], each[1::2]):
        part = [(site, *(service or "").partition("/")[::2], *nodes) for site, service, *nodes in part]
        columns = [pa.array([row[place] or None for row in part], pa.string()) for place in range(5)]
        found.add(pa.record_batch([one.dictionary_encode() for one in columns], names=COLUMNS))
    return found.finish(nodes)


def test_services_that_only_ever_ran_on_one_class_have_no_overlap_however_many_nodes():
    line = overlap_of([("s", "ocr", "a1", 50), ("s", "ocr", "a2", 50), ("s", "asr", "b1", 100)])
    assert (line.name, line.answer, line.fraction) == ("overlap", "no", 0.0)
    assert "for 0 % of requests at least two classes were tried" in line.reason
    alike = overlap_of([("s", "ocr", "a1", 50), ("s", "ocr", "a2", 50), ("s", "asr", "b1", 100)], ALIKE)
    assert (alike.answer, alike.fraction) == ("partial", 0.5)
    assert "at least two nodes" in alike.reason


def test_sites_are_not_alike():
    line = overlap_of([("s", "ocr", "a1", 50), ("t", "ocr", "b1", 50)])
    assert line.answer == "no"


@pytest.mark.parametrize(("count", "fraction"), [(4, 0.0), (5, 1.0)])
def test_a_choice_counts_from_five_requests_and_a_twentieth_on(count, fraction):
    assert overlap_of([("s", None, "a1", 60), ("s", None, "b1", count)]).fraction == fraction
    assert overlap_of([("s", None, "a1", 300), ("s", None, "b1", count)]).fraction == 0.0


def test_many_nodes_that_share_the_requests_evenly_were_all_tried():
    names = [f"n{number}" for number in range(70)]
    nodes = pa.table({"node_id": names, "node_class": ["a"] * 70})
    assert overlap_of([("s", None, name, 9) for name in names], nodes).fraction == 1.0
    assert overlap_of([("s", None, name, 4) for name in names], nodes).fraction == 0.0  # none of them often
    rare = [("s", None, name, 5) for name in names[1:8]]
    assert overlap_of([("s", None, "n0", 2000), *rare], nodes).fraction == 0.0  # 35 of 2,035


def test_requests_without_a_decision_are_in_the_whole_and_a_log_without_any_says_so():
    line = overlap_of([("s", "ocr", "a1", 50), ("s", "ocr", "b1", 50), ("s", "ocr", None, 100)])
    assert (line.answer, line.fraction) == ("partial", 0.5)
    assert overlap_of([("s", "ocr", None, 10)]).reason == "the log has no decisions"


def test_queues_with_nodes_of_their_own_tried_nothing_else():
    assert overlap_of([("s", "ocr", "a1", 50), ("s", "ocr", "b1", 50)]).fraction == 1.0
    assert overlap_of([("s", "ocr/batch", "a1", 50), ("s", "ocr/debug", "b1", 50)]).fraction == 0.0
    assert overlap_of([("s", "/batch", "a1", 50), ("s", "/debug", "b1", 50)]).fraction == 0.0
