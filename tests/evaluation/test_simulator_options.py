"""What worlds may do besides queueing: outputs, drops, failures, rules, reactions; all ways of playing them agree."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import WAN, conditions
from evaluation.simulator.failures import way_s
from evaluation.simulator.history import play_streams
from evaluation.simulator.logs import day_of, on_time
from evaluation.simulator.mechanics import unfolding
from evaluation.simulator.options import LinkFault, Outage, Reactions
from evaluation.simulator.presets import preset
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import validate
from tests.evaluation.worlds import agree_on_fates, interval, same_day, simulated, truth_of, uniform_policy
from tests.twin.made import reordered
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED
from twin.rollout import rollout

SMALL = preset("small")
OUTAGE = Outage("north-2", (0,), 2_000.0, 6_000.0)
WAN_DOWN = LinkFault("wan", (0,), 1_000.0, 3_000.0)
CHUNK_STEPS = 500


def with_options(requests_per_day):
    """All but sharing and reactions; as crowded as `small`, and as many requests a day as asked for."""
    services = [replace(service, output_mib=5.0) for service in SMALL.services]
    services[0] = replace(services[0], never_on=("cloud",))
    services[1] = replace(services[1], only_on=("north", "wide-cloud-1"))
    return validate(
        replace(
            SMALL,
            name="options",
            services=tuple(services),
            drop_late=True,
            outages=(
                OUTAGE,
                *(Outage("south-1", (0,), at_s, at_s + 300.0) for at_s in range(8_000, 20_000, 1_000)),
            ),
            link_faults=(WAN_DOWN, LinkFault("cross_site", (0,), 500.0, 4_000.0, slowdown=3.0)),
            requests_per_day=requests_per_day,
            day_s=SMALL.day_s * requests_per_day / SMALL.requests_per_day,
        )
    )


def with_everything(requests_per_day):
    world = with_options(requests_per_day)
    nodes = [
        replace(node, discipline="ps") if node.name in ("north-1", "south-2") else node
        for node in world.nodes
    ]
    reactions = Reactions(refusing=0.5, leaving=0.02, pausing=0.2, absence_s=600.0)
    return validate(replace(world, name="everything", nodes=tuple(nodes), reactions=reactions))


FIRST_COME = with_options(600.0)
EVERYTHING = with_everything(600.0)


@pytest.fixture(scope="module")
def first_come():
    return simulated(FIRST_COME, "random", num_streams=4, chunk_steps=CHUNK_STEPS)


@pytest.fixture(scope="module")
def everything():
    return simulated(EVERYTHING, "random", num_streams=4, chunk_steps=CHUNK_STEPS)


@pytest.mark.slow
def test_fates_drawn_at_once_and_fates_that_unfold_are_the_same(first_come):
    """Two implementations of one world: waits, drops, outages, slow links and outputs, request by request."""
    played = simulated(FIRST_COME, "random", num_streams=4, chunk_steps=CHUNK_STEPS, mechanics=unfolding)
    live = agree_on_fates(first_come, played, 0.05)
    counts = np.bincount(first_come.fate.status[live], minlength=4)
    assert np.all(counts[[COMPLETED, DROPPED, REJECTED]] > 50)
    assert counts[FAILED] >= 4


def crowding(start_s, end_s):
    moments = np.concatenate([end_s, start_s])
    change = np.repeat([-1, 1], len(start_s))
    return np.cumsum(change[np.lexsort((change, moments))]).max(initial=0)


@pytest.mark.slow
def test_every_request_ends_once_and_no_node_serves_more_than_it_may(everything):
    """The output of these is on its way for at least its time at full bandwidth; without that, places are counted."""
    today = conditions(EVERYTHING, 0)
    links = (EVERYTHING.local, EVERYTHING.cross_site, EVERYTHING.wan)
    way_s = np.array([5.0 / link.bandwidth_mib_per_s for link in links])
    for column in range(everything.live.shape[1]):
        rows = day_of(everything, column)
        fate = rows.fate
        assert set(np.unique(fate.status)) <= {COMPLETED, FAILED, DROPPED, REJECTED}
        np.testing.assert_array_equal(fate.status == REJECTED, ~fate.accepted)
        np.testing.assert_array_equal(np.isfinite(fate.finish_s), fate.accepted)
        assert np.all(np.isfinite(fate.start_s[fate.status == COMPLETED]))
        assert np.all(np.isinf(fate.start_s[(fate.status == DROPPED) | (fate.status == REJECTED)]))
        assert np.all(fate.finish_s >= rows.arrival_s)
        dropped = fate.status == DROPPED
        lateness_s = (fate.finish_s - rows.arrival_s - rows.request.deadline_s)[dropped]
        np.testing.assert_allclose(lateness_s, 0.0, atol=0.02)
        for index in range(len(EVERYTHING.nodes)):
            here = (rows.node == index) & np.isfinite(fate.start_s)
            link = today.link[rows.request.site[here], index]
            back_s = np.where(fate.status[here] == COMPLETED, way_s[link], 0.0)
            end_s = np.maximum(fate.finish_s[here] - back_s - 0.02, fate.start_s[here])
            least_way_s = 4.0 * (EVERYTHING.wan.latency_s + 0.02)  # latencies scatter
            assert crowding(fate.start_s[here], end_s - least_way_s) <= today.limit[index]


@pytest.mark.slow
def test_same_key_same_bits_whatever_days_stand_beside(everything):
    num_streams = everything.live.shape[1]
    keys = jax.random.split(jax.random.key(0), num_streams)[::-1]
    today = same_day(EVERYTHING, 0.0, num_streams)
    again = play_streams(EVERYTHING, behaviour("random"), today, keys, chunk_steps=CHUNK_STEPS)
    for column in range(num_streams):
        one, two = day_of(everything, column), day_of(again, num_streams - 1 - column)
        for before, after in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.slow
@pytest.mark.slow
def test_what_is_down_serves_nothing_and_comes_back_empty(first_come, everything):
    node = [one.name for one in SMALL.nodes].index(OUTAGE.node)
    for rows in (first_come, everything):
        here = rows.live & (rows.node == node) & rows.fate.accepted
        start_s, finish_s, status = rows.fate.start_s[here], rows.fate.finish_s[here], rows.fate.status[here]
        down = (start_s >= OUTAGE.from_s) & (start_s < OUTAGE.to_s)
        assert not np.any(down)
        ran = np.isfinite(start_s)
        spans = ran & (start_s < OUTAGE.from_s) & (finish_s > OUTAGE.from_s + 3.0)
        assert not np.any(spans)
        failed = status == FAILED
        assert np.any(failed)
        assert np.all(finish_s[failed] == OUTAGE.from_s)  # behaviours do not choose what is down
        after = rows.arrival_s[here] > OUTAGE.to_s
        assert np.any(after & (status == COMPLETED))
    up = [name not in (OUTAGE.node, "south-1") for name in (one.name for one in SMALL.nodes)]
    elsewhere = first_come.live & np.array(up)[first_come.node]
    assert not np.any(first_come.fate.status[elsewhere] == FAILED)


@pytest.mark.slow
def test_inputs_wait_for_a_link_that_is_down(first_come):
    cloud = [one.tier for one in SMALL.nodes].index("cloud")
    sent = first_come.live & (first_come.node == cloud) & first_come.fate.accepted
    sent &= (first_come.arrival_s >= WAN_DOWN.from_s) & (first_come.arrival_s < WAN_DOWN.to_s)
    start_s = first_come.fate.start_s[sent]
    assert len(start_s) > 10
    assert np.all(start_s >= WAN_DOWN.to_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "takes_s"),
    [
        ([(100.0, 200.0, np.inf), (200.0, 300.0, np.inf)], 151.0),
        ([(150.0, 300.0, np.inf), (100.0, 200.0, np.inf)], 151.0),
        ([(100.0, 200.0, np.inf), (190.0, 300.0, 3.0)], 53.0),
        ([(100.0, 200.0, np.inf), (120.0, 180.0, 3.0)], 51.0),
    ],
)
def test_a_transfer_begins_when_the_link_is_back_from_all_of_its_faults(faults, takes_s):
    plans = tuple(LinkFault("wan", (0,), *one) for one in faults)
    world = validate(replace(preset("small"), name="faulty", link_faults=plans))
    found = way_s(world, conditions(world, 0), jnp.array([WAN]), jnp.array([150.0]), jnp.array([1.0]))
    np.testing.assert_allclose(found, [takes_s])


def test_hosting_rules_bind_behaviours_and_the_clusters_legality(first_come, everything):
    hosts = conditions(EVERYTHING, 0).hosts
    for rows in (first_come, everything):
        assert np.all(hosts[rows.request.service, rows.node][rows.live])
    cluster = cluster_of(EVERYTHING)
    assert len(cluster.rules) == 3
    assert np.all(cluster.rules[0])
    np.testing.assert_array_equal(
        cluster.rules[first_come.request.rule[first_come.live]],
        hosts[first_come.request.service[first_come.live]],
    )


@pytest.mark.slow
def test_history_and_truth_have_one_law_with_everything_on():
    """The same behaviour in the log's history and in the environment: as many on time, dropped and failed."""
    num_steps, num_streams = 400, 16
    everything = simulated(EVERYTHING, "random", num_streams=num_streams, chunk_steps=CHUNK_STEPS)
    cluster = cluster_of(EVERYTHING)
    truth = truth_of(EVERYTHING, cluster, PlacementConfig(depth=48), 0.0)
    run = jax.jit(lambda key: rollout(key, truth, uniform_policy, num_steps, (num_streams,)))
    trajectory = run(jax.random.key(5))
    assert bool(jnp.all(trajectory.settled & trajectory.active))
    assert not bool(jnp.any(trajectory.illegal))
    status = np.asarray(trajectory.outcome.status[:, 0])
    days = [day_of(everything, column) for column in range(num_streams)]
    pairs = [(np.asarray(trajectory.reward[:, 0]), [on_time(day)[:num_steps] for day in days])]
    pairs += [
        (status == code, [day.fate.status[:num_steps] == code for day in days])
        for code in (DROPPED, REJECTED)
    ]
    for simulated_share, logged in pairs:
        mean, error = interval(simulated_share.mean(axis=0))
        expected, other_error = interval(np.array([one.mean() for one in logged]))
        assert abs(mean - expected) < 3.5 * np.hypot(error, other_error)
        assert error < 0.03


@pytest.mark.slow
def test_the_order_of_nodes_changes_no_outcome_that_unfolds():
    cluster = cluster_of(EVERYTHING)
    order = np.array([3, 0, 4, 2, 1])
    moved = reordered(cluster, order)
    outcomes = []
    for vocabulary, place in ((cluster, np.arange(len(order))), (moved, order)):
        truth = truth_of(EVERYTHING, vocabulary, PlacementConfig(depth=48), 0.0, begin_s=1_500.0)

        def policy(key, _observation, legal, place=place):
            score = jax.random.uniform(key, legal.shape)[jnp.asarray(place)]
            return jnp.argmax(jnp.where(legal, score, -1.0), axis=0).astype(jnp.int32)

        run = jax.jit(lambda key, truth=truth, policy=policy: rollout(key, truth, policy, 80, (2,)))
        outcomes.append(run(jax.random.key(1)))
    for name in ("start_s", "finish_s", "status"):
        one, two = (np.asarray(getattr(trajectory.outcome, name)) for trajectory in outcomes)
        np.testing.assert_array_equal(one, two)
    assert np.isfinite(np.asarray(outcomes[0].outcome.finish_s)).sum() > 80
