"""Rules of orchestration by hand: what is wanted, what is carried out, and where."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import GREEDY_SCALING, ORCHESTRATION_BASELINES
from evaluation.baselines.horizontal_scaling import (
    HorizontalScaling,
    carried_out,
    horizontal_scaling,
    recommended,
    stabilised,
)
from evaluation.simulator.slots import Deployment, Orchestration, SlotConfig, time_scaled
from evaluation.simulator.slots.instance import instance
from logs_schema.errors import ConfigError
from tests.evaluation.slot_runs import small_kais
from twin.orchestration.counts import nothing_counted
from twin.orchestration.deployment import first_deployed, schedule
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig, history_frames, validate_frames
from twin.orchestration.frame_state import (
    FrameState,
    Load,
    Measured,
    Scaling,
    as_orchestration,
    removable,
    specified,
)

TWO = FrameConfig(num_changes=2)


@pytest.fixture(scope="module")
def case() -> EdgeCloud:
    return instance(time_scaled(small_kais(), SlotConfig()), SlotConfig()).public


def standing(case: EdgeCloud, deployment: Deployment | None = None, **load: np.ndarray) -> FrameState:
    """A state at rest: nobody waits, all nodes are up."""
    num_services, num_nodes = case.num_services, case.num_nodes
    parts = {"running": num_nodes, "waiting": num_nodes, "queued": case.num_seats}
    zero = {name: np.zeros((num_services, width), np.float32) for name, width in parts.items()}
    deployment = first_deployed(case, ()) if deployment is None else deployment
    nothing = jnp.zeros((1, num_services))
    measured = Measured(nothing, nothing, nothing, nothing)
    loads = Load(**{name: jnp.asarray(load.get(name, zero[name])) for name in parts})
    up = jnp.ones(num_nodes, bool)
    return FrameState(jnp.float32(0.0), up, deployment, loads, measured, nothing_counted(()))


def pairs(action: Scaling, case: EdgeCloud) -> list[tuple[int, int]]:
    asked = as_orchestration(action, case.num_services)
    return list(zip(asked.node.tolist(), asked.change.tolist(), strict=True))


@pytest.mark.parametrize(
    ("load", "ready", "specified", "target", "wanted"),
    [
        (6.0, 3, 3, 1.0, 6),  # metric twice the target: the replicas are doubled
        (1.5, 3, 3, 1.0, 2),  # half of it: halved, rounded up
        (4.0, 4, 4, 0.8, 5),  # all busy: ceil(4 * 1.25)
        (3.5, 4, 4, 0.8, 4),  # 0.875 / 0.8 is within a tenth of 1
        (3.6, 4, 4, 0.8, 5),  # 0.9 / 0.8 is not
        (2.9, 4, 4, 0.8, 4),  # 0.725 / 0.8 is
        (0.0, 4, 4, 0.8, 1),  # one stays
        (0.0, 0, 0, 0.8, 0),  # who has none is left alone
        (math.nan, 4, 4, 0.8, 4),  # nothing measured, nothing changed
        (1.0, 1, 3, 0.8, 3),  # two not ready count as idle: what would add does not remove
        (5.0, 1, 2, 1.0, 5),
    ],
)
def test_horizontal_scaling_by_hand(
    load: float, ready: int, specified: int, target: float, wanted: int
) -> None:
    values = (jnp.float32(value) for value in (load, ready, specified))
    assert int(recommended(*values, target, 0.1)) == wanted


def as_documented(load: float, ready: int, specified: int, target: float, tolerance: float) -> int:
    """The documentation's algorithm in plain Python: ratio by ready pods, then with the others counted as idle."""
    if specified == 0:
        return 0
    ratio = load / ready / target
    if ratio > 1.0 and ready < specified:
        ratio = load / specified / target
        if ratio < 1.0:
            return specified
    counted = specified if ratio > 1.0 else ready
    if abs(ratio - 1.0) <= tolerance:
        return specified
    return max(1, math.ceil(round(ratio * counted, 4)))


def test_horizontal_scaling_against_the_documented_algorithm() -> None:
    random = np.random.default_rng(0)
    size = 400
    ready, more = random.integers(1, 9, size), random.integers(0, 3, size)
    load = np.round(random.uniform(0.0, 12.0, size), 2)
    found = recommended(jnp.asarray(load), jnp.asarray(ready), jnp.asarray(ready + more), 0.7, 0.1)
    wanted = [
        as_documented(one, int(ready), int(ready + more), 0.7, 0.1)
        for one, ready, more in zip(load.tolist(), ready, more, strict=True)
    ]
    ratio = load / (0.7 * ready)
    clear = (np.abs(np.abs(ratio - 1.0) - 0.1) > 1e-3) & (np.abs(load / (0.7 * (ready + more)) - 1.1) > 1e-3)
    assert clear.sum() > 350
    np.testing.assert_array_equal(np.asarray(found)[clear], np.asarray(wanted)[clear])


def test_a_removal_must_have_been_wanted_all_through_the_window() -> None:
    window = jnp.asarray([[5, 3, 1, 7, 9], [3, 3, 1, 2, 9], [2, 2, 6, 2, 9]], jnp.float32)
    assert stabilised(window, jnp.full(5, 5.0)).tolist() == [5, 3, 6, 5, 9]


def test_a_window_longer_than_what_is_kept_is_refused(case: EdgeCloud) -> None:
    slots = SlotConfig()
    assert history_frames(slots, FrameConfig()) == 12
    with pytest.raises(ConfigError, match="600 s"):
        horizontal_scaling(HorizontalScaling(stabilisation_s=600.0))(case, FrameConfig())
    for wrong in (FrameConfig(num_changes=0), FrameConfig(samples_per_frame=7), FrameConfig(history_s=0.0)):
        with pytest.raises(ConfigError, match="FrameConfig"):
            validate_frames(slots, wrong)


@pytest.mark.slow
def test_what_lacks_most_is_added_first_where_most_memory_is_left(case: EdgeCloud) -> None:
    state = standing(case)
    has = specified(state.deployment)
    memory_gib, used_gib = case.memory_gib, np.asarray(state.deployment.used_gib)
    order = np.argsort(np.asarray(has[1:])) + 1
    few, many = int(order[0]), int(order[-1])
    wanted = has.at[few].add(1).at[many].add(1)
    (first_node, first), (_, second) = pairs(carried_out(case, TWO, jax.random.key(0), state, wanted), case)
    assert (first, second) == (few, many)
    room = np.where(
        case.hosts[few] & (memory_gib - used_gib >= case.replica_gib[few] - 1e-4),
        1.0 - (used_gib + case.replica_gib[few]) / memory_gib - 2.0 * case.replicas[few],
        -np.inf,
    )
    assert room[first_node] == pytest.approx(room.max())


def test_removals_come_after_additions_and_where_most_replicas_are(case: EdgeCloud) -> None:
    state = standing(case)
    has = specified(state.deployment)
    most = int(np.argmax(case.replicas.sum(axis=1)))
    other = 1 if most != 1 else 2
    asked = pairs(
        carried_out(case, TWO, jax.random.key(0), state, has.at[most].add(-2).at[other].add(1)), case
    )
    assert asked[0][1] == other
    assert asked[1][1] == -most
    assert case.replicas[most, asked[1][0]] == case.replicas[most].max()
    twice = pairs(carried_out(case, TWO, jax.random.key(0), state, has.at[most].add(-2)), case)
    assert [change for _, change in twice] == [-most, -most]
    asked_twice = Orchestration(*(jnp.asarray(one) for one in zip(*twice, strict=True)))
    after, _ = schedule(case, state.deployment, asked_twice, jnp.float32(0.0))
    assert float(specified(after)[most]) == has[most] - 2
    assert float(jnp.sum(removable(after)[most])) == has[most] - 2
    content = pairs(carried_out(case, TWO, jax.random.key(0), state, has), case)
    assert [change for _, change in content] == [0, 0]


def test_two_additions_of_one_frame_do_not_share_the_last_memory(case: EdgeCloud) -> None:
    service = int(np.argmax(case.replica_gib))
    needs_gib = float(case.replica_gib[service])
    full = first_deployed(case, ())
    room = np.where(case.hosts[service], 0.0, -1.0)
    node = int(np.argmax(room))
    used_gib = jnp.asarray(case.memory_gib).at[node].add(-1.5 * needs_gib)
    state = standing(case, full._replace(used_gib=used_gib))
    wanted = specified(full).at[service].add(2)
    changes = pairs(carried_out(case, TWO, jax.random.key(0), state, wanted), case)
    assert changes[0] == (node, service)
    assert changes[1][1] == 0


def test_greedy_scaling_takes_the_longest_queues_and_the_idlest_nodes(case: EdgeCloud) -> None:
    num_services, num_nodes = case.num_services, case.num_nodes
    waiting, queued, running = (
        np.zeros((num_services, width), np.float32) for width in (num_nodes, case.num_seats, num_nodes)
    )
    waiting[2, 0], queued[2, 1], waiting[3, 1], queued[1, 0] = 2.0, 2.0, 3.0, 1.0
    running[1] = 0.9 * case.cores
    idlest = np.flatnonzero(case.hosts[2] & case.hosts[3])[:2]
    running[1, idlest] = [0.0, 0.5 * case.cores[idlest[1]]]
    empty = first_deployed(case, ())._replace(used_gib=jnp.zeros(num_nodes))
    rule = GREEDY_SCALING.rule(case, TWO)
    state = standing(case, empty, waiting=waiting, queued=queued, running=running)
    assert pairs(rule(jax.random.key(0), state), case) == [(int(idlest[0]), 2), (int(idlest[1]), 3)]
    full = empty._replace(used_gib=jnp.asarray(case.memory_gib))
    assert [
        change for _, change in pairs(rule(jax.random.key(0), state._replace(deployment=full)), case)
    ] == [0, 0]
    calm = pairs(rule(jax.random.key(0), standing(case, empty)), case)
    assert [change for _, change in calm] == [0, 0]


def test_every_rule_decides_for_many_streams_at_once(case: EdgeCloud) -> None:
    state = standing(case)
    wide = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, 3)), state)
    frames = history_frames(case.config, TWO)
    unknown = jnp.full((frames, case.num_services, 3), jnp.nan)
    wide = wide._replace(measured=Measured(unknown, unknown, unknown, unknown))
    assert len({one.name for one in ORCHESTRATION_BASELINES}) == len(ORCHESTRATION_BASELINES) == 5
    for baseline in ORCHESTRATION_BASELINES:
        shaped = jax.eval_shape(baseline.rule(case, TWO), jax.random.key(0), wide)
        assert {(leaf.shape, leaf.dtype.name) for leaf in shaped} == {((2, 3), "int32")}, baseline.name
