"""A frame as a Response: the changes asked for are entered, and a frozen policy dispatches until the frame ends.

Private are the whole state of slot mode and what it hides. Revealed at the end of the frame are the deployment, the
counts, and the loads, measured `FrameConfig.samples_per_frame` times and averaged.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from twin.contracts import Array, Environment, EnvironmentState, Outcome, Policy, Problem, Response, Streams
from twin.environment import environment
from twin.orchestration.chance import Chance
from twin.orchestration.deployment import Deployment
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameEvents, FrameState, Load, Scaling, as_orchestration
from twin.orchestration.mechanics import Private, slot_response
from twin.orchestration.nodes import HeldRequests
from twin.orchestration.queues import Queues
from twin.orchestration.slots import SlotState, slot_problem
from twin.placement.features import one_hot

Dispatch = Callable[[Array, SlotState, Array], Array]
"""(key, state, legal) -> node of every seat [seats, *streams]; frozen while the orchestrator learns."""


def observing(case: EdgeCloud, policy: Policy) -> Dispatch:
    """A policy that sees local observations only, as a way to dispatch."""
    problem = slot_problem(case)
    return lambda key, state, legal: policy(key, problem.observe(state), legal)


def frame_response(
    case: EdgeCloud,
    chance: Chance,
    dispatch: Dispatch,
    config: FrameConfig,
    deployed: Callable[[Streams], Deployment] | None = None,
) -> Response:
    """What comes of the changes of a frame.

    Args:
        case: The cluster.
        chance: What is by chance; episodes begin with an empty system.
        dispatch: Plays the slots.
        config: See `FrameConfig`.
        deployed: What is deployed when episodes begin; the cluster's first deployment by default.

    Returns:
        The response to `frame_problem(case, config)`; the same key gives the same arrivals whatever is decided.
    """
    problem = slot_problem(case)
    num_samples = config.samples_per_frame
    num_slots = case.config.slots_per_frame // num_samples

    def init(key: Array, streams: Streams) -> tuple[EnvironmentState, Outcome]:
        response = slot_response(case, chance, deployed=deployed)
        state = environment(problem, response).reset(key, streams)
        nothing = jax.tree.map(jnp.zeros_like, load_now(case, state.response))
        zero_s = jnp.zeros(streams, jnp.float32)
        return state, Outcome(zero_s, state.terminated, state.done, frame_events(state.problem, nothing))

    def advance(
        key: Array, state: EnvironmentState, _known: FrameState, action: Scaling
    ) -> tuple[EnvironmentState, Outcome]:
        asked = as_orchestration(action, case.num_services)
        system = environment(problem, slot_response(case, chance, lambda _key, _state: asked))

        slot = dispatched_slot(system, problem, dispatch)

        def sample(carry: tuple[EnvironmentState, Load], keys: Array) -> tuple[tuple, None]:
            state, total = carry
            state, _ = jax.lax.scan(slot, state, keys)
            return (state, jax.tree.map(jnp.add, total, load_now(case, state.response))), None

        keys = jax.random.split(key, (num_samples, num_slots))
        nothing = jax.tree.map(jnp.zeros_like, load_now(case, state.response))
        (after, total), _ = jax.lax.scan(sample, (state, nothing), keys)
        mean = jax.tree.map(lambda leaf: leaf / num_samples, total)
        elapsed_s = after.problem.placement.clock_s - state.problem.placement.clock_s
        return after, Outcome(elapsed_s, after.terminated, after.done, frame_events(after.problem, mean))

    return Response(init, advance, lambda _private, state: state)


def dispatched_slot(
    system: Environment, problem: Problem, dispatch: Dispatch
) -> Callable[[EnvironmentState, Array], tuple[EnvironmentState, None]]:
    """A slot of `system`, the environment of `problem`, as the body of a scan over keys."""

    def slot(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
        key_dispatch, key_slot = jax.random.split(key)
        node = dispatch(key_dispatch, state.problem, problem.legal(state.problem))
        return system.step(key_slot, state, node)[0], None

    return slot


def frame_events(slot: SlotState, load: Load) -> FrameEvents:
    """What is observed at the end of a frame, with its mean load."""
    inner, view = slot.placement, slot.view
    return FrameEvents(inner.clock_s, inner.available, view.deployment, load, view.counts)


def load_now(case: EdgeCloud, private: Private) -> Load:
    """Requests by service now."""
    held: HeldRequests = private.held
    queues: Queues = private.queues
    num_services = case.num_services
    present = jnp.isfinite(held.arrives_s) & jnp.isinf(held.end_s)
    serving = present & jnp.isfinite(held.start_s)
    here = one_hot(held.service, num_services)
    waits = one_hot(queues.service, num_services) & jnp.isfinite(queues.arrival_s)[None]
    return Load(
        jnp.sum(here & serving[None], axis=2, dtype=jnp.float32),
        jnp.sum(here & (present & ~serving)[None], axis=2, dtype=jnp.float32),
        jnp.sum(waits, axis=1, dtype=jnp.float32),
    )
