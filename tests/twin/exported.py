"""Small problems that the packages export, as cases of the contract tests, and the worked example."""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines.random import RANDOM
from evaluation.simulator.applications.presets import application as preset
from evaluation.simulator.applications.response import application_response, limits_of
from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance, instance
from notebooks.batches.problem import BatchEdges, batches_problem, edges_response
from tests.evaluation.slot_runs import small_kais
from tests.ordering.making import jobs_of
from tests.ordering.pooling import cut_whole, joined
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.problem import autoscaling_problem
from twin.autoscaling.rewards import cost_under_slo
from twin.contracts import Array, Environment, Outcome, PyTree, Response, Streams
from twin.environment import environment
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import frame_response, observing
from twin.orchestration.frames import frame_problem
from twin.orchestration.joint import joint_problem, joint_response
from twin.orchestration.mechanics import slot_response
from twin.orchestration.slots import slot_problem
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import replayed_jobs
from twin.ordering.problem import ordering
from twin.ordering.responses import queue_response
from twin.ordering.types import Pool

POOL = Pool(10, easy=True)
ORDERING = OrderingConfig(num_visible=4, queue_size=30, running_size=10, num_agents=4, time_unit_s=5.0)
SLOTS = SlotConfig(node_places=3, queue_places=6, slots_per_frame=4)
FRAMES = FrameConfig(num_changes=2, samples_per_frame=2, history_s=2.0)
SCALING = AutoscalingConfig(window=4)
KEY = jax.random.key(5)


def without_chance(response: Response) -> Response:
    """The response, but every stream draws what all others do: streams differ by their actions alone."""

    def init(_key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        def wide(leaf: Array) -> Array:
            leaf = jnp.asarray(leaf)
            return jnp.broadcast_to(leaf.reshape(leaf.shape + (1,) * len(streams)), leaf.shape + streams)

        private, outcome = jax.tree.map(wide, response.init(KEY, ()))
        return (jnp.int32(0), jnp.zeros(streams), private), outcome

    def advance(_key: Array, private: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        step, rank, own = private
        key = jax.random.fold_in(KEY, step)
        alone = _in_every_stream(lambda *parts: response.advance(key, *parts), rank.ndim)
        own, outcome = alone(own, state, action)
        return (step + 1, rank, own), outcome

    def resolve_pending(private: PyTree, state: PyTree) -> PyTree:
        return _in_every_stream(response.resolve_pending, private[1].ndim)(private[2], state)

    return Response(init, advance, resolve_pending)


def _in_every_stream(function, num_axes):
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=-1, out_axes=-1)
    return function


def batches(length: int, drawn: bool = True) -> Environment:
    """The worked example, with edges of three kinds."""
    delay_s, s_per_mib, cores = (
        jnp.array(one) for one in ([0.2, 1.0, 3.0], [1.0, 0.3, 0.05], [2.0, 8.0, 64.0])
    )
    sizes, gaps = jnp.array([0.5, 4.0, 30.0]), jnp.array([10.0, 60.0, 90.0])
    response = edges_response(BatchEdges(delay_s, s_per_mib, jnp.float32(0.2), cores, sizes, gaps), length)
    return environment(batches_problem(cores), response if drawn else without_chance(response))


def queue(num_jobs: int, drawn: bool = True) -> Environment:
    """A queue that replays one of four windows, drawn at reset."""
    windows = joined([cut_whole(_crowded(seed, num_jobs), POOL, ORDERING) for seed in range(4)])
    response = queue_response(POOL, ORDERING, replayed_jobs(windows))
    return environment(ordering(POOL, ORDERING), response if drawn else without_chance(response))


def _crowded(seed: int, num_jobs: int):
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 30, num_jobs)
    arrival = np.sort(rng.integers(0, 2 * num_jobs, num_jobs))
    rows = (arrival, rng.integers(3, POOL.processors + 1, num_jobs), run * rng.integers(1, 4, num_jobs), run)
    return jobs_of(*np.stack(rows).T, agent=rng.integers(0, 3, num_jobs))


def slots(num_slots: int | None = None, drawn: bool = True) -> Environment:
    """Slot mode; the day is over after so many slots."""
    case = _slot_case()
    response = slot_response(case.public, true_chance(case, _begin_s(case, num_slots)))
    return environment(slot_problem(case.public), response if drawn else without_chance(response))


def frames(num_frames: int | None = None, drawn: bool = True) -> Environment:
    """Orchestration over random dispatch; the day is over after so many frames."""
    case = _slot_case()
    num_slots = None if num_frames is None else num_frames * SLOTS.slots_per_frame
    dispatch = observing(case.public, RANDOM.policy(case.public.cluster))
    response = frame_response(case.public, true_chance(case, _begin_s(case, num_slots)), dispatch, FRAMES)
    return environment(frame_problem(case.public, FRAMES), response if drawn else without_chance(response))


def joint(num_slots: int | None = None, drawn: bool = True) -> Environment:
    """Dispatchers and an orchestrator in one trajectory; the day is over after so many slots."""
    case = _slot_case()
    response = joint_response(case.public, true_chance(case, _begin_s(case, num_slots)))
    problem = joint_problem(case.public, FRAMES)
    return environment(problem, response if drawn else without_chance(response))


def deployments(length: int, drawn: bool = True) -> Environment:
    """Autoscaling of a small application, whose episodes are cut after so many intervals."""
    application = preset("chain")
    rates = np.random.default_rng(0).uniform(20.0, 80.0, (200, len(application.users)))
    problem = autoscaling_problem(SCALING, limits_of(application), cost_under_slo())
    response = application_response(application, SCALING, rates, length)
    return environment(problem, response if drawn else without_chance(response))


def _slot_case() -> Instance:
    return instance(time_scaled(small_kais(2, 1), SLOTS, 0.6), SLOTS)


def _begin_s(case: Instance, num_slots: int | None) -> float:
    return 0.0 if num_slots is None else case.by_site.day_s - num_slots * SLOTS.slot_s
