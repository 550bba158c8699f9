"""Generated days: as many requests as the rates say, agents who ask as often as they do, the same day from a key."""

import datetime as dt

import jax
import numpy as np
import pyarrow.compute as pc
import pytest

from logs_schema.calendar import DAY_S
from tests.twin.population.toys import agents
from twin.placement.encoding import day_start_s
from twin.population import AgentConditions, AgentTable, WorkloadModel, bootstrap, fit_population
from twin.population.agents import ACTIVITY
from twin.population.arrival_times import fit_arrivals
from twin.population.days import draw_requests

MONDAY = dt.date(2024, 1, 1)
A_DAY = 3000
ASKS = 15


@pytest.fixture(scope="module")
def workload() -> WorkloadModel:
    """Everybody asks fifteen times a day."""
    table = agents(600)
    named = AgentTable(
        table.conditions, table.categorical, {**table.continuous, ACTIVITY: np.full(600, float(ASKS))}
    )
    first = round(day_start_s(MONDAY) / DAY_S)
    arrival_s = np.sort(np.random.default_rng(0).uniform(0.0, 7 * DAY_S, 7 * A_DAY)) + first * DAY_S
    return WorkloadModel(
        fit_population(jax.random.key(0), bootstrap(), named),
        fit_arrivals(arrival_s, range(first, first + 7)),
        {},
    )


@pytest.mark.slow
def test_a_day_follows_rates_agents_and_their_activity(workload: WorkloadModel) -> None:
    day = MONDAY + dt.timedelta(days=9)
    rows = draw_requests(jax.random.key(1), workload, day)
    assert abs(len(rows) / A_DAY - 1.0) < 0.1
    assert set(pc.unique(rows["arrival"].cast("date32")).to_pylist()) == {day}
    assert np.all(np.diff(rows["arrival"].cast("int64").to_numpy()) >= 0)
    assert len(set(rows["request_id"].to_pylist())) == len(rows)
    asked = np.unique(rows["agent"].to_pylist(), return_counts=True)[1]
    assert np.mean(asked == ASKS) > 0.9  # but for the last agent of each part of the day
    services = rows["service"].to_pylist()
    wanted = workload.model.encoding.decode(
        workload.model.parameters["rows"], AgentConditions(workload.model.conditions.scenario, np.zeros(600))
    )
    for name in ("a", "b", "c"):
        assert (
            abs(np.mean(np.array(services) == name) - np.mean(wanted.categorical["service"] == name)) < 0.08
        )
    assert rows["start"].null_count == len(rows)


@pytest.mark.slow
def test_the_same_key_gives_the_same_day(workload: WorkloadModel) -> None:
    one, again, other = (draw_requests(jax.random.key(number), workload, MONDAY) for number in (3, 3, 4))
    assert one.equals(again)
    assert not one.equals(other)
