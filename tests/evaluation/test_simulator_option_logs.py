"""What the options of a world leave in its log, and that a policy fitted to the log can act in its truth."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.simulator import logs, mechanics
from evaluation.simulator.conditions import conditions
from evaluation.simulator.logs import FIRST_DAY, simulate
from evaluation.simulator.names import names_in
from evaluation.simulator.options import Outage, Reactions, Reports
from evaluation.simulator.presets import preset
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import Drift, validate
from logs_schema import Archive
from logs_schema.check import check_archive
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import held_less_in_system, simulated, truth_of, uniform_policy
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.encode import read_rows
from twin.placement.encoding import fit_encoding

SMALL = preset("small")
REQUESTS_PER_DAY = 400.0


def made():
    services = [replace(service, output_mib=3.0) for service in SMALL.services]
    services[0] = replace(services[0], never_on=("cloud",))
    services[5] = replace(services[5], share=0.0)
    nodes = [replace(node, discipline="ps") if node.name == "south-1" else node for node in SMALL.nodes]
    return validate(
        replace(
            SMALL,
            services=tuple(services),
            nodes=tuple(nodes),
            requests_per_day=REQUESTS_PER_DAY,
            day_s=SMALL.day_s * REQUESTS_PER_DAY / SMALL.requests_per_day,
            drop_late=True,
            reactions=Reactions(memory=0.5, refusing=0.3, leaving=0.3, pausing=0.2, absence_s=300.0),
            outages=(Outage("north-1", (1,), 0.0, 3_000.0),),
            drift=Drift(hot_service="service-05", hot_from_day=2, hot_share=0.3),
        )
    )


WORLD = made()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    out = tmp_path_factory.mktemp("options") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "preset", lambda name: WORLD)
        patch.setattr(logs, "DAYS_AT_ONCE", 3)
        simulate("small", 3, "random", 0, out)
    return Archive(out)


@pytest.fixture(scope="module")
def encoding(archive):
    return fit_encoding(archive, archive.days("requests")[:2])


@pytest.mark.slow
def test_the_log_is_clean_and_says_what_the_options_did(archive):
    report = check_archive(archive.path)
    assert report.usable
    assert all(table["quarantined"] == 0 for table in report.to_json()["tables"].values())
    rows = archive.read("requests").to_pylist()
    assert {"completed", "rejected", "dropped"} <= {row["status"] for row in rows}
    restricted = [row for row in rows if row["service"] == "service-00"]
    assert all(
        "wide-cloud-1" not in row["candidates"] and row["offered_node"] in row["candidates"]
        for row in restricted
    )
    assert all(row["candidates"] is None for row in rows if row["service"] != "service-00")
    assert {row["output_mib"] for row in rows} == {3.0}
    assert all((row["ran_node"] is None) == (row["start"] is None) for row in rows)


@pytest.mark.slow
def test_who_left_for_good_never_asks_again_and_somebody_new_does(archive):
    left = {}
    for row in archive.read("requests").to_pylist():  # in order of arrival
        assert row["agent"] not in left, (row, left[row["agent"]])
        if row["agent_left"]:
            left[row["agent"]] = row["arrival"]
        assert row["session"].startswith(f"{row['agent']}-{row['arrival']:%Y%m%d}-")
    assert len(left) > 10
    asking = {row["agent"] for row in archive.read("requests").to_pylist()}
    assert any(agent.endswith(".1") for agent in asking)
    assert any(agent.endswith(".2") for agent in asking)


@pytest.mark.slow
def test_node_samples_tell_when_a_node_was_down(archive):
    samples = archive.read("node_samples").to_pylist()
    told = {
        (str(row["time"].date()), row["time"].hour * 3600 + row["time"].minute * 60, row["node_id"]): row[
            "available"
        ]
        for row in samples
    }
    assert len(told) == 3 * len(WORLD.nodes) + 1
    down = {place for place, available in told.items() if not available}
    assert down == {("2024-01-02", 0, "north-1")}
    assert told["2024-01-02", 3_000, "north-1"]
    offered = [row for row in archive.read("requests").to_pylist() if row["offered_node"] == "north-1"]
    seconds = [
        (row["arrival"].day, row["arrival"].hour * 3600 + row["arrival"].minute * 60) for row in offered
    ]
    assert not any(day == 2 and second < 2_940 for day, second in seconds)
    assert any(day == 2 for day, _ in seconds)


@pytest.mark.slow
def test_an_encoded_log_speaks_of_the_worlds_rules_and_new_services_are_unknown_to_it(archive, encoding):
    cluster = encoding.cluster
    assert "service-05" not in cluster.services
    names = names_in(WORLD, cluster)
    assert names.service[5] == 0
    assert names.world_service[0] == 5
    rows, wanted = read_rows(archive, encoding, archive.days("requests")[:1], known_until_s=np.inf)
    service = names.world_service[rows.request.service[wanted]]
    np.testing.assert_array_equal(rows.request.rule[wanted], names.rule[service])
    hosts = conditions(WORLD, 0).hosts[:, names.world_node]
    np.testing.assert_array_equal(cluster.rules[names.rule], hosts)


@pytest.mark.slow
def test_books_and_fates_agree_and_obey_littles_law_where_fates_unfold(encoding):
    """The number held, summed over arrivals and divided by their rate, is the time in the system (no reactions: the
    rate is known), and what the books hold is what the fates say."""
    still = replace(WORLD, reactions=Reactions(), outages=())
    truth = truth_of(still, encoding.cluster, PlacementConfig(depth=40), 0.0)
    difference, error, in_system_s = held_less_in_system(still, truth, uniform_policy)
    assert abs(difference) < 4.0 * error
    assert error < 0.08 * in_system_s


@pytest.mark.slow
def test_a_full_node_refuses_and_loses_nothing(monkeypatch):
    """With two slots a node, whatever is accepted still ends."""
    monkeypatch.setattr(mechanics, "NUM_SLOTS", 2)
    crowded = replace(WORLD, name="crowded", reactions=Reactions(), outages=(), drop_late=False)
    rows = simulated(crowded, "random", num_streams=2, chunk_steps=250)
    accepted = rows.live & rows.fate.accepted
    assert np.all(np.isfinite(rows.fate.finish_s[accepted]))
    assert 0.2 < accepted.sum() / rows.live.sum() < 0.95
    for node in range(len(WORLD.nodes)):
        here = accepted[:, 0] & (rows.node[:, 0] == node)
        moments = np.concatenate([rows.fate.finish_s[here, 0], rows.arrival_s[here, 0]])
        change = np.repeat([-1, 1], here.sum())
        assert np.cumsum(change[np.lexsort((change, moments))]).max() == 2


def test_weekends_ask_for_a_log_that_begins_on_a_monday(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "preset", lambda name: replace(WORLD, weekend_factor=0.5))
    with pytest.raises(ConfigError, match="is not"):
        simulate("small", 1, "random", 0, tmp_path / "log", first_day=FIRST_DAY.replace(day=2))
    assert not (tmp_path / "log").exists()


@pytest.mark.slow
def test_a_cluster_made_without_a_log_has_the_same_rules(encoding):
    made = cluster_of(WORLD)
    assert {row.tobytes() for row in made.rules} == {
        row.tobytes()
        for row in encoding.cluster.rules[
            :, [encoding.cluster.node_names.index(name) for name in made.node_names]
        ]
    }


@pytest.mark.slow
def test_ends_are_reported_late_or_never_as_often_as_told_and_the_log_stays_usable(tmp_path):
    """The same replications with and without: only what the log says of ends differs."""
    sound = replace(SMALL, requests_per_day=800.0, day_s=SMALL.day_s * 0.32)
    tables = []
    for name, world in (
        ("sound", sound),
        ("poor", replace(sound, reports=Reports(lost=0.2, late=0.5, delay_s=90.0))),
    ):
        simulate(validate(world), 2, "random", 0, tmp_path / name)
        tables.append(Archive(tmp_path / name).read("requests"))
    assert check_archive(tmp_path / "poor").usable
    for column in set(tables[0].column_names) - {"finish", "status"}:
        assert tables[0][column].equals(tables[1][column]), column
    true_s, told_s = (table["finish"].to_numpy().astype("datetime64[us]") for table in tables)
    ran = tables[0]["start"].is_valid().to_numpy()
    lost = ran & np.isnat(told_s)
    np.testing.assert_array_equal(tables[1]["status"].to_numpy(zero_copy_only=False)[lost], "unknown")
    assert lost.sum() / ran.sum() == pytest.approx(0.2, abs=0.05)
    delay_s = (told_s - true_s)[ran & ~lost] / np.timedelta64(1, "s")
    assert np.mean(delay_s > 0.0) == pytest.approx(0.5, abs=0.06)
    assert delay_s[delay_s > 0.0].mean() == pytest.approx(90.0, rel=0.2)
    assert delay_s.min() == 0.0
    with pytest.raises(ConfigError, match="lost"):
        validate(replace(SMALL, reports=Reports(lost=1.2)))
