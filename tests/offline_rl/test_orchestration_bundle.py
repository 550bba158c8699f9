"""The orchestrator of a bundle: its plan in NumPy is the original's, and a copy that decides otherwise is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.forecast import true_forecast
from evaluation.simulator.slots.instance import instance
from logs_schema.errors import ProductError
from offline_rl.networks import Example
from offline_rl.orchestration.advice import advised_actor
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import StepwiseConfig
from offline_rl.orchestration_export import Plan, _copy, _drawn, golden_frames
from offline_rl.rules.orchestration.planned import ADVICE, PlannedConfig, planned
from offline_rl.rules.orchestration.tuned_plan import numbers_of, with_numbers
from offline_rl.runner.frame_plan import PlanNumbers, load_level, planned_changes, wanted_replicas
from offline_rl.runner.frame_view import NOT_MEASURED, FrameView
from offline_rl.runner.orchestrator import NUM_FRAMES, replay_frames
from tests.evaluation.slot_runs import small_kais
from twin.contracts import Array
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling

SLOTS = SlotConfig(node_places=4, queue_places=6)
TRUTH = instance(time_scaled(small_kais(2, 3), SLOTS, 0.6), SLOTS)
FRAMES = FrameConfig(num_changes=3)
PLAN = Plan(TRUTH.public, FRAMES, true_forecast(TRUTH))
SMALL = StepwiseConfig(GraphConfig(4, (4,)), hidden=(8, 4))


@jax.jit
def original_changes(numbers: dict[str, Array], state: FrameState) -> Scaling:
    """What the original changes; its numbers are arguments, as where they are tuned."""
    plan = with_numbers(numbers)
    return planned(PLAN.edge, PLAN.forecast, FRAMES, plan)(jax.random.key(0), state)


@pytest.mark.parametrize(
    "plan", [ADVICE, replace(ADVICE, lead_frames=2.5, target=1.1, safety=1.6, backlog=0.1)]
)
def test_the_plan_in_numpy_asks_for_what_the_original_asks_for(plan: PlannedConfig) -> None:
    state, views = _drawn(PLAN, np.random.default_rng(1))
    original = original_changes(numbers_of(plan), state)
    tables = _copy({"params": {}}, PLAN._replace(numbers=plan), SMALL).tables
    asked = np.asarray(original.change)
    assert np.count_nonzero(asked) > NUM_FRAMES / 2  # it is no plan that asks for nothing
    for frame in range(NUM_FRAMES):
        view = FrameView(*(leaf[frame] for leaf in views))
        found = planned_changes(tables, view, FRAMES.num_changes)
        done = asked[:, frame]
        np.testing.assert_array_equal(found.change, done)
        np.testing.assert_array_equal(found.node[done > 0], np.asarray(original.node)[:, frame][done > 0])


def test_a_service_that_nobody_may_host_holds_up_no_other() -> None:
    tables = _copy({"params": {}}, PLAN, SMALL).tables
    num_services, num_nodes = tables.hosts.shape
    nothing = np.zeros((num_services, num_nodes), np.float32)
    queued = np.zeros((num_services, PLAN.edge.num_seats))
    view = FrameView(0.0, np.ones(num_nodes, bool), *[nothing] * 5, queued)
    lacks_most = int(np.argmax(tables.busy[0]))
    assert planned_changes(tables, view, 1).change.tolist() == [lacks_most + 1]
    hosts = PLAN.edge.hosts.copy()
    hosts[lacks_most + 1] = False
    without = _copy({"params": {}}, PLAN._replace(edge=PLAN.edge._replace(hosts=hosts)), SMALL).tables
    changes = planned_changes(without, view, 3).change
    assert (changes > 0).all()
    assert lacks_most + 1 not in changes


def test_a_forecast_is_corrected_by_the_load_of_the_last_frames() -> None:
    numbers = PlanNumbers(target=0.8, safety=0.7, most_gib=np.inf, prior=0.5, backlog=0.3)
    forecast = np.full((4, 3), 2.0)
    busy = np.array([[np.nan] * 3, [np.nan] * 3, [2.0, 4.0, 0.0], [2.0, 4.0, 0.0]])
    level = load_level(numbers, busy, busy + np.array([0.0, 10.0, 0.0]), forecast)
    np.testing.assert_allclose(level, [1.0, (0.5 + 2 * (4 + 3)) / 4.5, 0.5 / 4.5])
    nothing = np.full((4, 3), np.nan)
    np.testing.assert_array_equal(load_level(numbers, nothing, nothing, forecast), 1.0)
    np.testing.assert_array_equal(load_level(numbers, NOT_MEASURED, NOT_MEASURED, forecast[:0]), 1.0)


def test_what_is_wanted_fits_the_memory_and_leaves_nobody_without_a_replica() -> None:
    numbers = PlanNumbers(target=0.5, safety=0.0, most_gib=6.0, prior=0.5, backlog=0.3)
    busy, gib = np.array([4.0, 0.1, 0.0]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(wanted_replicas(numbers, busy, gib), [8.0 * 6.0 / 8.2, 1.0, 0.0])


@pytest.mark.slow
def test_a_copy_is_held_against_golden_frames() -> None:
    random = np.random.default_rng(2)
    begun = jax.tree.map(np.asarray, advised_actor(_example(), PLAN.edge, SMALL).init(jax.random.key(0)))
    params = jax.tree.map(lambda leaf: leaf + random.normal(size=leaf.shape).astype(np.float32), begun)
    golden = golden_frames(params, PLAN, SMALL, random)
    copy = _copy(params, PLAN, SMALL)
    replay_frames(copy, golden, where="here")
    arrays = {name: np.flip(leaf) for name, leaf in copy.arrays.items()}
    with pytest.raises(ProductError, match="does not decide as the original"):
        replay_frames(replace(copy, arrays=arrays), golden, where="here")


@pytest.mark.slow
def test_an_orchestrator_that_has_learned_nothing_makes_every_change_of_the_plan() -> None:
    """Of several at one node, too: such an orchestrator is handed over where the plan itself was the best."""
    actor = advised_actor(_example(), PLAN.edge, SMALL)
    golden = golden_frames(actor.init(jax.random.key(0)), PLAN, SMALL, np.random.default_rng(1))
    asked = original_changes(numbers_of(ADVICE), _drawn(PLAN, np.random.default_rng(1))[0])
    twice = 0
    for frame in range(NUM_FRAMES):
        nodes, changes = (np.asarray(leaf)[:, frame] for leaf in asked)
        wanted = sorted(zip(nodes[changes > 0], changes[changes > 0], strict=True))
        made = zip(golden["node"][frame], golden["change"][frame], strict=True)
        assert sorted(one for one in made if one[1] > 0) == wanted
        twice += len({node for node, _ in wanted}) < len(wanted)
    assert twice > NUM_FRAMES / 4


def _example() -> Example:
    """Shapes of what an orchestrator sees of the cluster."""
    from offline_rl.orchestration.advice import advised
    from twin.orchestration.frames import frame_problem

    state, _ = _drawn(PLAN, np.random.default_rng(0))
    problem = advised(frame_problem(PLAN.edge, FRAMES), planned(PLAN.edge, PLAN.forecast, FRAMES, ADVICE))
    seen = problem.observe(state), problem.legal(state)
    return Example(*jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), seen), None)
