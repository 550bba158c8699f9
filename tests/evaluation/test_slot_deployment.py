"""Deployments: what can be asked for, what comes of it when, and what worlds and configurations are refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.presets import preset
from evaluation.simulator.slots import DELAY_GREEDY, Deployment, Orchestration, SlotConfig, time_scaled
from evaluation.simulator.slots.instance import instance
from evaluation.simulator.slots.replicas import first_deployment
from evaluation.simulator.world import Link, World
from logs_schema.errors import ConfigError
from tests.evaluation.slot_runs import small_kais
from twin.orchestration.deployment import carry_out, first_deployed, schedule
from twin.orchestration.dequeue import promote
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.nodes import HeldRequests, nothing_held
from twin.orchestration.queues import Queues, first_in_line


@pytest.fixture(scope="module")
def case() -> EdgeCloud:
    return instance(time_scaled(small_kais(), SlotConfig()), SlotConfig(changes=2)).public


def ask(case: EdgeCloud, deployment: Deployment, *pairs: tuple[int, int]) -> tuple[Deployment, float]:
    node, change = (jnp.asarray(column, jnp.int32) for column in zip(*pairs, strict=True))
    deployment, pulled_mib = schedule(case, deployment, Orchestration(node, change), jnp.float32(10.0))
    return deployment, float(pulled_mib)


def empty(case: EdgeCloud) -> HeldRequests:
    return nothing_held(case.cluster.num_nodes, 3, ())


def absent(case: EdgeCloud) -> tuple[int, int]:
    """A service and an edge node that does not host it."""
    edge = np.flatnonzero(~case.cluster.is_cloud)
    service, position = np.argwhere(case.replicas[1:, edge] == 0)[0]
    return int(service) + 1, int(edge[position])


def test_an_image_that_is_not_there_is_pulled_first(case: EdgeCloud) -> None:
    service, node = absent(case)
    before = first_deployed(case, ())
    asked, pulled_mib = ask(case, before, (node, service))
    wan = small_kais().wan
    image_mib = 200.0 * case.replica_gib[service]
    assert pulled_mib == pytest.approx(image_mib)
    gained_gib = asked.used_gib[node] - before.used_gib[node]
    np.testing.assert_allclose(gained_gib, case.replica_gib[service], rtol=1e-4)
    takes_s = wan.latency_s + image_mib / wan.bandwidth_mib_per_s
    early, _ = carry_out(case, asked, empty(case), jnp.float32(10.0 + takes_s - 0.01))
    assert early.replicas[service, node] == 0
    late, _ = carry_out(case, early, empty(case), jnp.float32(10.0 + takes_s + 0.01))
    assert late.replicas[service, node] == 1
    assert not late.service.any()


def test_another_replica_needs_no_pull(case: EdgeCloud) -> None:
    service, node = (int(one) for one in np.argwhere(case.replicas == 1)[0])
    asked, pulled_mib = ask(case, first_deployed(case, ()), (node, service))
    assert pulled_mib == 0.0
    done, _ = carry_out(case, asked, empty(case), jnp.float32(10.0))
    assert done.replicas[service, node] == 2


def test_only_an_idle_replica_is_removed(case: EdgeCloud) -> None:
    service, node = (int(one) for one in np.argwhere(case.replicas == 1)[0])
    held = empty(case)
    held = held._replace(
        service=held.service.at[node, 0].set(service), arrives_s=held.arrives_s.at[node, 0].set(9.0)
    )
    asked, _ = ask(case, first_deployed(case, ()), (node, -service))
    waits, _ = carry_out(case, asked, held, jnp.float32(10.25))
    assert waits.replicas[service, node] == 1
    assert waits.used_gib[node] == asked.used_gib[node]
    ended = held._replace(end_s=held.end_s.at[node, 0].set(10.3))
    done, _ = carry_out(case, waits, ended, jnp.float32(10.5))
    assert done.replicas[service, node] == 0
    np.testing.assert_allclose(
        asked.used_gib[node] - done.used_gib[node], case.replica_gib[service], rtol=1e-3
    )


def test_what_cannot_be_is_no_change(case: EdgeCloud) -> None:
    before = first_deployed(case, ())
    service, node = absent(case)
    full = before._replace(used_gib=jnp.asarray(case.memory_gib))
    num_services, num_nodes = case.num_services, case.num_nodes
    for deployment, pair in (
        (before, (node, 0)),
        (before, (node, -service)),
        (full, (node, service)),
        (before, (num_nodes, 1)),
        (before, (-1, 1)),
        (before, (node, num_services)),
    ):
        after, pulled_mib = ask(case, deployment, pair)
        assert pulled_mib == 0.0
        same = jax.tree.map(lambda one, two: bool(jnp.all(one == two)), deployment, after)
        assert all(jax.tree.leaves(same)), pair
    hosted, where = (int(one) for one in np.argwhere(case.replicas == 1)[0])
    twice, _ = ask(case, before, (where, -hosted), (where, -hosted))
    assert int((twice.service > 0).sum()) == 1
    many, _ = ask(case, before, (where, hosted), (where, hosted), (where, hosted))
    assert int((many.service > 0).sum()) == case.config.changes


def test_every_service_is_hosted_within_the_memory(case: EdgeCloud) -> None:
    for world in (preset("kais"), preset("kmps"), small_kais()):
        made = instance(world, SlotConfig()).public
        assert (made.replicas[1:].sum(axis=1) > 0).all()
        used_gib = made.replica_gib @ made.replicas
        assert (used_gib <= made.memory_gib + 1e-6).all()
        assert made.replicas[0].sum() == 0
        missing = (made.replicas[1:] == 0).mean()
        assert 0.05 < missing < 0.95  # which nodes are legal depends on the service


def test_the_next_request_is_the_one_the_strategy_says() -> None:
    def line(key: list[float]) -> int:
        zero = jnp.zeros(3)
        arrival_s = jnp.array([3.0, 1.0, 2.0])
        leaves = (arrival_s, zero + 5.0, jnp.array(key), *[zero] * 5, jnp.zeros(()))
        return int(first_in_line(Queues(*(leaf[:, None] if leaf.ndim else leaf[None] for leaf in leaves)))[0])

    arrival_s, late_s = jnp.array([3.0, 1.0, 2.0]), jnp.array([4.0, 9.0, 5.0])
    assert line(arrival_s.tolist()) == 1
    assert line(DELAY_GREEDY.key(arrival_s, late_s, arrival_s).tolist()) == 0
    assert line([2.0, 2.0, 2.0]) == 1  # equals by arrival
    urgent = promote(jnp.array([2.0, 2.0, 1.0]), late_s, jnp.array([0.5, 2.0, 3.5]), jnp.float32(2.0))
    np.testing.assert_allclose(urgent, [0.5, 2.0, -0.2])
    still = promote(urgent, late_s, jnp.zeros(3), jnp.float32(0.0))
    np.testing.assert_allclose(still, [0.0, 0.0, -0.2])


def refused(world: World, config: SlotConfig | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        instance(world, config or SlotConfig())
    return str(caught.value)


def test_impossible_worlds_and_configurations_are_refused_by_name() -> None:
    world = small_kais()
    homeless = replace(world.services[0], only_on=("nowhere",))
    assert homeless.name in refused(replace(world, services=(homeless, *world.services[1:])))
    assert "cpu_cores" in refused(
        replace(world, nodes=(replace(world.nodes[0], cpu_cores=0), *world.nodes[1:]))
    )
    assert "latency_s" in refused(replace(world, local=Link(latency_s=-1.0)))
    assert "reactions" in refused(replace(world, reactions=type(world.reactions)(leaving=0.5)))
    assert "reports" in refused(replace(world, reports=type(world.reports)(lost=0.1)))
    for name, value in (("slot_s", 0.0), ("node_places", 0), ("memory_share", 1.5), ("estimate_memory", 1.0)):
        assert name in refused(world, replace(SlotConfig(), **{name: value}))
    with pytest.raises(ConfigError, match="requests a slot"):
        time_scaled(world, SlotConfig(), 0.95)


def test_a_service_that_no_node_can_host_is_refused_by_name() -> None:
    one, two = np.ones(1), np.ones(2)
    hosts = np.array([[True, True], [True, False]])
    for replica_gib, memory_gib in (
        (np.array([1.0, 9.0]), 8.0 * two),
        (np.array([1.0, 5.0]), np.array([4.0, 8.0])),
    ):
        with pytest.raises(ConfigError, match=r"no node can host a replica of: rare"):
            first_deployment(
                np.ones((2, 1)),
                replica_gib,
                memory_gib,
                two,
                np.zeros(2, int),
                hosts,
                0.5,
                4,
                ("often", "rare"),
            )
    with pytest.raises(ConfigError, match="often"):
        first_deployment(
            np.ones((1, 1)), one, 0.0 * one, one, np.zeros(1, int), one[None] > 0, 0.5, 4, ("often",)
        )


def test_services_that_crowd_each_other_out_are_refused() -> None:
    world = small_kais()
    services = tuple(replace(one, memory_gib=5.0) for one in preset("kais").services[:30])
    nodes = tuple(replace(node, cpu_cores=1) for node in world.nodes)
    message = refused(replace(world, nodes=nodes, services=services, drift=type(world.drift)()))
    assert "finds no memory" in message
