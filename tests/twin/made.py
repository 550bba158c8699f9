"""Small clusters, logs and encodings made from a seed."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa

from twin.placement.acceptance import acceptance_of
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.encode import EncodedRows
from twin.placement.encoding import Encoding
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, UNKNOWN, Cluster, Requests


def reordered(cluster: Cluster, order: np.ndarray) -> Cluster:
    """The cluster with its nodes in another order."""
    return replace(
        cluster,
        node_names=tuple(cluster.node_names[i] for i in order),
        capacity=cluster.capacity[:, order],
        unit_capacity=cluster.unit_capacity[:, order],
        run_ratio=cluster.run_ratio[:, order],
        run_variance=cluster.run_variance[:, order],
        site_of_node=cluster.site_of_node[order],
        is_cloud=cluster.is_cloud[order],
        rules=cluster.rules[:, order],
    )


def made_cluster(num_edge: int = 3, num_sites: int = 2, num_services: int = 3) -> Cluster:
    """Edge nodes of different sizes dealt to sites, and an unlimited cloud; the second rule forbids the first node."""
    num_nodes = num_edge + 1
    cores = np.append(4.0 * (1 + np.arange(num_edge) % 3), np.inf)
    memory = np.append(8.0 * (1 + np.arange(num_edge) % 2), np.inf)
    capacity = np.stack([cores, memory, np.zeros(num_nodes)])
    rules = np.ones((2, num_nodes), bool)
    rules[1, 0] = False
    return Cluster(
        node_names=(*(f"edge-{i}" for i in range(num_edge)), "cloud"),
        capacity=capacity,
        unit_capacity=capacity / np.array([[1.0], [2.0], [1.0]]),
        site_of_node=np.append(np.arange(num_edge) % num_sites, num_sites - 1),
        is_cloud=np.arange(num_nodes) == num_edge,
        sites=tuple(f"site-{i}" for i in range(num_sites)),
        scenarios=("unknown", "rush"),
        services=("unknown", *(f"service-{i}" for i in range(1, num_services))),
        queues=("unknown",),
        rules=rules,
        run_ratio=np.exp(0.4 * np.random.default_rng(0).standard_normal((num_services, num_nodes))),
        run_variance=np.full((num_services, num_nodes), 0.1),
        agents=("agent-1",),
        acceptance_of_agent=np.array([[0.9, 0.2, 0.4]]),
        acceptance_of_scenario=np.array([[1.0, 0.8, 0.6], [1.0, 0.7, 0.3]]),
    )


def made_encoding(cluster: Cluster, **problem: object) -> Encoding:
    """An encoding around `cluster`, with fields of the problem's configuration chosen by the caller."""
    config = PlacementConfig(**{"depth": 8, "time_unit_s": 2.0, "memory_s": 30.0, **problem})  # type: ignore[arg-type]
    names = {name: index for index, name in enumerate(cluster.node_names)}
    runs = (20.0,) * len(cluster.services)
    return Encoding(cluster, names, False, runs, False, config, (dt.date(2020, 1, 1),))


def agent_name(agent: int) -> str | None:
    """What the logs of made requests call an agent."""
    return f"agent-{agent}" if agent >= 0 else None


def made_requests(rng: np.random.Generator, cluster: Cluster, shape: tuple[int, ...]) -> Requests:
    """Random requests; about one in ten fits nowhere."""

    def index(choices: int, low: int = 0) -> np.ndarray:
        return rng.integers(low, choices, shape).astype(np.int32)

    def number(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, shape).astype(np.float32)

    demand = np.stack([number(0.1, 4.0), number(0.1, 2.0), np.zeros(shape, np.float32)])
    demand[2] = rng.random(shape) < 0.1
    agent, scenario = index(3, -1), index(len(cluster.scenarios))
    names = pa.array([agent_name(one) for one in agent.ravel().tolist()], pa.string())
    home, elsewhere, cloud = acceptance_of(cluster, names, scenario.ravel())
    return Requests(
        site=index(len(cluster.sites)),
        scenario=scenario,
        service=index(len(cluster.services)),
        queue=index(len(cluster.queues)),
        agent=agent,
        rule=index(len(cluster.rules)),
        demand=demand,
        num_nodes=index(3, 1).astype(np.float32),
        expected_run_s=number(1.0, 40.0),
        deadline_s=np.where(rng.random(shape) < 0.3, np.inf, number(1.0, 60.0)).astype(np.float32),
        input_mib=number(0.0, 5.0),
        day_fraction=number(0.0, 1.0),
        week_fraction=number(0.0, 1.0),
        accepts_home=home.reshape(shape),
        accepts_elsewhere=elsewhere.reshape(shape),
        accepts_cloud=cloud.reshape(shape),
    )


def made_rows(
    rng: np.random.Generator, cluster: Cluster, count: int, gap_s: int = 3, run_s: int = 20
) -> EncodedRows:
    """A random log on whole seconds: ties, waits, refusals, drops, failures and unfinished requests included."""
    arrival_s = np.cumsum(rng.integers(0, gap_s + 1, count)).astype(float) + 1.6e9
    start_s = arrival_s + np.where(rng.random(count) < 0.5, 0, rng.integers(0, run_s, count))
    finish_s = start_s + rng.integers(0, run_s, count)
    kinds = np.array([COMPLETED, FAILED, DROPPED, REJECTED, UNKNOWN], np.int32)
    status = rng.choice(kinds, count, p=[0.7, 0.1, 0.08, 0.1, 0.02])
    start_s = np.where((status == DROPPED) | (status == REJECTED), np.inf, start_s)
    finish_s = np.where((status == REJECTED) | (status == UNKNOWN), np.inf, finish_s)
    node = rng.integers(0, cluster.num_nodes, count).astype(np.int32)
    requests = made_requests(rng, cluster, (count,))
    names = np.array([f"request-{i}" for i in range(count)])
    return EncodedRows(arrival_s, start_s, finish_s, status, node, requests, names, np.zeros(count, bool))
