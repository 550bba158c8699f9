"""Agents drawn from an archive: one row an agent and day, whatever it asks; a stated fallback where they are hidden."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logs_schema import Archive, ArchiveWriter
from logs_schema.columns import arrow_schema
from logs_schema.errors import ConfigError
from logs_schema.tables import REQUESTS, SCHEMA_VERSION
from twin.population import draw_agents
from twin.population.agents import ACTIVITY, CANDIDATES

FIRST = dt.date(2024, 1, 1)
DAYS = [FIRST + dt.timedelta(days=number) for number in range(3)]


def archive_of(path: Path, rows: list[dict]) -> Archive:
    schema = arrow_schema(REQUESTS, SCHEMA_VERSION)
    table = pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )
    with ArchiveWriter(path) as writer:
        writer.write("requests", table, source="made")
    return Archive(path)


def request(number: int, day: int, second: float, **fields: object) -> dict:
    arrival = dt.datetime.combine(DAYS[day], dt.time(), dt.UTC) + dt.timedelta(seconds=second)
    return {"request_id": f"r{number}", "site": "here", "status": "completed", "arrival": arrival, **fields}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Every day a keen agent asks 90 times, nine others once each; a day's first request hides its agent."""
    rows = []
    for day in range(3):
        rows.append(request(1000 * day, day, 1.0, service="hidden"))
        for number in range(90):
            fields = {"agent": "keen", "service": "big", "cpu_cores": 8.0, "candidates": ["n2", "n1"]}
            rows.append(request(1000 * day + 1 + number, day, 10.0 + number, **fields))
        for number in range(9):
            fields = {"agent": f"rare-{number}", "service": "small", "cpu_cores": 1.0, "scenario": "s"}
            rows.append(request(1000 * day + 500 + number, day, 43_200.0 + number, **fields))
    return archive_of(tmp_path_factory.mktemp("logs") / "archive", rows)


def test_every_agent_of_a_day_gives_one_row(archive: Archive) -> None:
    table, report = draw_agents(archive, DAYS)
    assert report.unit == "agent and day"
    assert (report.num_requests, report.num_rows, report.num_hidden) == (300, 30, 3)
    assert np.mean(table.categorical["service"] == "big") == 0.1
    assert sorted(set(table.continuous[ACTIVITY])) == [1.0, 90.0]
    big = table.categorical["service"] == "big"
    assert np.all(table.continuous[ACTIVITY][big] == 90.0)
    assert np.all(table.categorical[CANDIDATES][big] == "n1|n2")
    assert np.all(table.categorical[CANDIDATES][~big] == "any")
    assert np.all(table.conditions.scenario == np.where(big, "unknown", "s"))
    assert np.allclose(table.conditions.day_fraction[~big], 0.5, atol=1e-3)


def test_agents_may_give_several_rows_all_equally_many(tmp_path: Path) -> None:
    rows = []
    for agent, count in (("keen", 90), ("calm", 6), ("rare", 4)):
        for number in range(count):
            fields = {"agent": agent, "service": agent, "cpu_cores": float(number)}
            rows.append(request(len(rows), 0, 60.0 * len(rows), **fields))
    archive = archive_of(tmp_path / "archive", rows)
    table, report = draw_agents(archive, DAYS[:1], rows_an_agent=6)
    assert (report.rows_a_unit, report.num_rows, report.num_units) == (6, 18, 3)
    service, cores = table.categorical["service"], table.continuous["cpu_cores"]
    # An agent that asks less often gives some again
    for agent, different in (("keen", 6), ("calm", 6), ("rare", 4)):
        assert np.sum(service == agent) == 6
        assert len(set(cores[service == agent])) == different
    assert [len(set(service[table.unit == unit])) for unit in range(3)] == [1, 1, 1]
    assert sorted(set(table.continuous[ACTIVITY])) == [4.0, 6.0, 90.0]
    # All agents have room
    assert draw_agents(archive, DAYS[:1], rows_an_agent=6, max_rows=10)[1].rows_a_unit == 3
    assert draw_agents(archive, DAYS[:1], rows_an_agent=6, max_rows=2)[1].num_units == 2


def test_no_agent_gives_more_rows_than_the_busiest_one_has(tmp_path: Path) -> None:
    rows = [request(number, number % 3, float(number), agent=f"agent-{number % 5}") for number in range(30)]
    table, report = draw_agents(archive_of(tmp_path / "archive", rows), DAYS, rows_an_agent=8)
    assert (report.rows_a_unit, report.num_units) == (2, 15)
    assert table.unit is not None
    assert np.all(np.bincount(table.unit) == 2)  # agents of different days are different units


def test_the_draw_within_an_agent_is_even(archive: Archive) -> None:
    found = [
        draw_agents(archive, DAYS, seed=seed)[0].conditions.day_fraction.min() * 86_400.0
        for seed in range(40)
    ]
    second = np.array(found) - 10.0
    assert len(set(found)) > 20
    assert abs(np.mean(second) - 90 / 4) < 12.0  # the least of three even draws


def test_columns_that_the_log_does_not_fill_are_left_out_and_named(archive: Archive) -> None:
    table, report = draw_agents(archive, DAYS)
    assert list(table.continuous) == ["cpu_cores", ACTIVITY]
    assert {"memory_gib", "deadline_s", "queue"} <= set(report.left_out)


def test_where_agents_are_hidden_every_request_is_a_row(tmp_path: Path) -> None:
    rows = [request(number, number % 3, float(number), service="a") for number in range(60)]
    table, report = draw_agents(archive_of(tmp_path / "archive", rows), DAYS, max_rows=30)
    assert report.unit == "request"
    assert (report.num_requests, report.num_rows, report.num_hidden) == (60, 30, 60)
    assert ACTIVITY not in table.continuous


def test_days_without_requests_are_refused(archive: Archive) -> None:
    with pytest.raises(ConfigError, match="2024-02-01"):
        draw_agents(archive, [dt.date(2024, 2, 1)])
    with pytest.raises(ConfigError, match="no days"):
        draw_agents(archive, [])
