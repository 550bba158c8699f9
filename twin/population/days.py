"""A generated day of requests: arrival times, and the agents that make them, as rows of the archive.

Agents are generated for every part of the day until their requests (`ACTIVITY` of each) fill that
part's arrivals. So the generated day follows the law of the requests and that of the agents, and an agent has a name
of its own for a day. What this leaves out: the requests of one agent are alike and lie in one part of the day.
"""

import datetime as dt

import jax
import numpy as np
import pyarrow as pa

from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from logs_schema.casting import with_columns
from twin.contracts import Array
from twin.placement.encoding import day_start_s
from twin.population.agents import ACTIVITY, AgentTable
from twin.population.arrival_times import draw_arrivals
from twin.population.arrivals import NUM_PARTS, as_requests, conditions_of_parts
from twin.population.population import sample_agents
from twin.population.workload import WorkloadModel

SPARE = 1.5


def draw_requests(key: Array, workload: WorkloadModel, day: dt.date) -> pa.Table:
    """The requests of one generated day, without decisions and outcomes.

    Args:
        key: PRNG key.
        workload: The model.
        day: Its date; weekday and hours have the rates that were learned for them.

    Returns:
        Rows of the archive's table `requests`, by arrival; possibly none.
    """
    key_times, key_agents, key_rows = jax.random.split(key, 3)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key_rows)).tolist())
    midnight_s = day_start_s(day)
    drawn = draw_arrivals(
        key_times, workload.times, offset_s=(midnight_s - MONDAY_S) % WEEK_S, length_s=DAY_S
    )
    time_s = np.sort(np.asarray(drawn, float))
    part = np.minimum((time_s / DAY_S * NUM_PARTS).astype(int), NUM_PARTS - 1)
    agents, agent = _agents(key_agents, random, workload, np.bincount(part, minlength=NUM_PARTS))
    used, place = np.unique(agent, return_inverse=True)
    # Of each agent once, however many requests it makes
    rows = as_requests(agents.take(used)).take(pa.array(place))
    microseconds = pa.array(np.round((midnight_s + time_s) * 1e6).astype(np.int64))
    columns = {
        "arrival": microseconds,
        "request_id": pa.array([f"{day:%Y%m%d}-{number:06d}" for number in range(len(time_s))]),
    }
    if ACTIVITY in agents.continuous:
        columns["agent"] = pa.array([f"{day:%Y%m%d}-agent-{number}" for number in agent])
    return with_columns(rows, columns)


def _agents(
    key: Array, random: np.random.Generator, workload: WorkloadModel, counts: np.ndarray
) -> tuple[AgentTable, np.ndarray]:
    """Agents for so many requests in every part of the day, and the agent of each request."""
    a_part = np.ceil(SPARE * counts / _mean_activity(workload)).astype(int) + 16 * (counts > 0)
    part = np.repeat(np.arange(NUM_PARTS), a_part)
    agents = sample_agents(key, workload.model, conditions_of_parts(random, workload.model.conditions, part))
    activity = np.ones(len(part))
    if ACTIVITY in agents.continuous:
        activity = np.maximum(agents.continuous[ACTIVITY], 1.0)
    chosen = [
        _filling(random, np.flatnonzero(part == number), activity, int(count))
        for number, count in enumerate(counts)
    ]
    return agents, np.concatenate(chosen)


def _filling(random: np.random.Generator, among: np.ndarray, activity: np.ndarray, count: int) -> np.ndarray:
    """[count] agents, each as often as it makes requests, in random order; the last of them may be cut short."""
    if count == 0:
        return np.zeros(0, np.int64)
    requests = np.repeat(among, np.round(activity[among]).astype(int))
    return random.permutation(np.resize(requests, count))


def _mean_activity(workload: WorkloadModel) -> float:
    """Requests an agent and day, by a sample of agents."""
    agents = sample_agents(jax.random.key(0), workload.model, 1024)
    if ACTIVITY not in agents.continuous:
        return 1.0
    return float(np.mean(np.maximum(agents.continuous[ACTIVITY], 1.0)))
