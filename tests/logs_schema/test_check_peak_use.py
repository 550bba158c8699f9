from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from logs_schema.formats.reading import tabulate
from logs_schema.peak_use import COLUMNS, OF_SITE, PeakUse
from logs_schema.tables import REQUESTS

START = datetime(2020, 1, 1, tzinfo=UTC).timestamp()


def rows(*jobs):
    """Rows of (arrival, start, finish, cores, node or nodes), instants in seconds after START."""
    made = []
    for arrival, start, finish, cores, where in jobs:
        made.append(
            {
                "arrival": START + arrival,
                "site": "s",
                "cpu_cores": cores,
                "memory_gib": None,
                "gpus": 0.5,
                "start": None if start is None else START + start,
                "finish": None if finish is None else START + finish,
                "status": "running" if finish is None else "completed",
                "ran_node": (where or [None])[0] if isinstance(where, list) else where,
                "ran_nodes": where if isinstance(where, list) else None,
                "offered_node": None,
                "accepted": None,
            }
        )
    return tabulate(REQUESTS, sorted(made, key=lambda row: row["arrival"]))


def peaks(table, batch_rows=1, **known):
    use = PeakUse(**known)
    for batch in table.select(COLUMNS).to_batches(max_chunksize=batch_rows):
        use.add(batch)
    use.finish()
    return use, {name: use.peak[index] for name, index in use.places.items()}


def test_those_who_end_leave_before_those_who_start():
    _, found = peaks(rows((0, 0, 10, 4.0, "a"), (1, 10, 20, 4.0, "a"), (2, 19, 30, 4.0, "a")))
    assert found["a"][0] == 8.0
    assert found["a"][1] == 0.0
    assert found["a"][2] == 1.0


def test_shares_of_a_request_on_several_nodes():
    _, found = peaks(rows((0, 0, 10, 5.0, ["a", "b", "b"]), (1, 5, 6, 1.0, "a")))
    assert found["a"][0] == pytest.approx(5 / 3 + 1)
    assert found["b"][0] == pytest.approx(10 / 3)
    assert found[f"{OF_SITE}s"][0] == 6.0


def test_a_request_that_ran_where_the_log_does_not_say_ran_where_it_was_offered_to():
    jobs = rows((0, 0, 10, 4.0, None), (1, 1, 10, 2.0, "b"), (2, 2, 9, 1.0, None), (3, 3, 8, 1.0, None))
    offers = pa.array(["a", "a", "of a class", "a"])
    answers = pa.array([True, True, None, False])  # who declined runs elsewhere
    jobs = jobs.drop_columns(["offered_node", "accepted"])
    jobs = jobs.append_column("offered_node", offers).append_column("accepted", answers)
    use, found = peaks(jobs, offered=frozenset({"a", "b"}))
    assert (found["a"][0], found["b"][0], found[f"{OF_SITE}s"][0]) == (4.0, 2.0, 8.0)
    assert (use.num_without_node, "of a class" in found) == (2, False)


def test_a_node_may_be_called_as_its_site_is_shown():
    _, found = peaks(rows((0, 0, 10, 4.0, "site s"), (1, 5, 20, 3.0, "b")))
    assert (found["site s"][0], found["b"][0], found[f"{OF_SITE}s"][0]) == (4.0, 3.0, 7.0)


def test_an_empty_list_of_nodes_says_no_more_than_none():
    use, found = peaks(rows((0, 0, 10, 5.0, "a"), (1, 5, 6, 1.0, "a")))
    emptied = rows((0, 0, 10, 5.0, []), (1, 5, 6, 1.0, "a"))
    index = emptied.column_names.index("ran_node")
    emptied = emptied.set_column(
        index, "ran_node", rows((0, 0, 10, 5.0, "a"), (1, 5, 6, 1.0, "a"))["ran_node"]
    )
    again, same = peaks(emptied)
    assert again.num_without_node == use.num_without_node == 0
    assert {name: peak.tolist() for name, peak in same.items()} == {
        name: peak.tolist() for name, peak in found.items()
    }


def test_what_still_runs_at_the_end_is_never_released_and_what_never_started_takes_nothing():
    _, found = peaks(rows((0, 0, None, 4.0, "a"), (1, None, None, 9.0, "a"), (500, 600, 700, 2.0, "a")))
    assert found["a"][0] == 6.0


def test_without_a_node_the_site_still_counts():
    use, found = peaks(rows((0, 0, 10, 4.0, None), (1, 1, 11, 3.0, None)))
    assert found == {f"{OF_SITE}s": pytest.approx([7.0, 0.0, 1.0])}
    assert use.num_without_node == 2


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_against_counting_at_every_instant(batch_rows):
    random = np.random.default_rng(5)
    arrival = np.sort(random.integers(0, 200, 300))
    start = arrival + random.integers(0, 60, 300)
    finish = start + random.integers(0, 40, 300)
    cores = random.integers(1, 9, 300).astype(float)
    nodes = random.choice(["a", "b", "c"], 300)
    _, found = peaks(rows(*zip(arrival, start, finish, cores, map(str, nodes), strict=True)), batch_rows)
    for node in "abc":
        mine = nodes == node
        at_instants = [cores[mine & (start <= t) & (t < finish)].sum() for t in range(300)]
        assert found[node][0] == max(at_instants)


def test_plain_strings_read_as_labels_do():
    table = rows((0, 0, 10, 4.0, "a"))
    plain = table.set_column(table.schema.get_field_index("ran_node"), "ran_node", pa.array(["a"]))
    np.testing.assert_array_equal(peaks(plain)[1]["a"], peaks(table)[1]["a"])


def test_instants_before_1970_are_instants():
    shift = timedelta(days=365 * 60).total_seconds()
    _, found = peaks(rows((-shift, -shift, 10 - shift, 4.0, "a"), (0, 0, 1, 1.0, "a")))
    assert found["a"][0] == 4.0
