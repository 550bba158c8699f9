"""The simulated truth as a twin of itself, for worlds whose acceptance depends on scenario and kind of offer alone."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.biases import bias_lines
from evaluation.certify.config import CertifyConfig
from evaluation.certify.family import settled
from evaluation.certify.forecasting import Forecaster
from evaluation.certify.lines import Line
from evaluation.certify.model_class import model_class_lines
from evaluation.certify.tested_system import CloneBehaviour, SystemUnderTest
from evaluation.simulator import presets
from evaluation.simulator.answers import draw_offer
from evaluation.simulator.conditions import conditions, world_draw
from evaluation.simulator.names import names_in
from evaluation.simulator.unfolding import unseated
from evaluation.simulator.world import Drift, World
from twin.placement.availability import time_to_availability_s
from twin.placement.encoding import fit_encoding
from twin.placement.learned import with_moved_fates
from twin.placement.log_windows import encode_days
from twin.placement.pace import Pace
from twin.placement.responses import Answers
from twin.placement.types import COMPLETED, REJECTED, Cluster, Fate

NAME = "control"


def control_world(discipline: str = "fifo") -> World:
    """`small` without what a stateless truth cannot know: agents of one scenario are alike, and nothing drifts."""
    return replace(without_memory(presets.preset("small"), discipline), name=NAME)


def without_memory(world: World, discipline: str = "fifo") -> World:
    """A world in which agents of a scenario are alike, and nothing drifts."""
    nodes = tuple(replace(node, discipline=discipline) for node in world.nodes)
    return replace(world, nodes=nodes, stubbornness=0.0, drift=Drift())


def one_step_lines(
    tested: SystemUnderTest, clone: CloneBehaviour, archive, days, config: CertifyConfig
) -> list[Line]:
    """The lines of a certificate that rest on forecasts from logged states, settled as one family."""
    parts = [encode_days(archive, tested.encoding, [day], num_steps=config.num_steps) for day in days]
    told = Forecaster(tested, clone, seed=0).forecast(parts)
    return settled([*bias_lines(told, config), *model_class_lines(told, config)], len(days))


def true_answers(world: World, cluster: Cluster, today) -> Answers:
    """The mechanics of a world of first come, first served, from the bookkeeping's own knowledge of its queues."""
    names = names_in(world, cluster)
    scenarios = world_draw(world).scenario
    first_of = np.array([np.flatnonzero(scenarios == one)[0] for one in range(len(world.scenarios))])
    agent = np.zeros(len(cluster.scenarios), np.int32)
    agent[names.scenario] = first_of
    shares = cluster.pace is not None and cluster.pace.shares

    def answer(key, memory, state, node, availability_s):
        request = unseated(state.request)
        request = request._replace(agent=jnp.asarray(agent)[request.scenario])
        offer = draw_offer(key, world, today, names, request, state.clock_s, node[0])
        # Nobody waits where cores are shared, unless memory is full
        room_s = jnp.where(shares, 0.0, availability_s[0])
        start_s = jnp.maximum(offer.there_s, state.clock_s + room_s)
        status = jnp.where(offer.accepted, COMPLETED, REJECTED).astype(jnp.int32)
        fate = Fate(offer.accepted, start_s, start_s + offer.run_s, status)
        return memory, jax.tree.map(lambda leaf: leaf[None], fate)

    def response_aux(state, node):
        return time_to_availability_s(cluster, state, node)

    return with_moved_fates(cluster, Answers(lambda _key, _streams: None, answer, response_aux))


def true_pace(world: World, cluster: Cluster) -> Pace | None:
    """How runs slow each other in a world whose services are all as sensitive; None where they do not."""
    shares = any(node.discipline == "ps" for node in world.nodes)
    if not (shares or world.contends):
        return None
    pressures = {one.name: one.pressure * one.sensitivity for one in world.services}
    return Pace(np.array([pressures.get(name, 0.0) for name in cluster.services]), shares)


def true_twin(archive, world: World, train_days, *, num_steps: int = 128) -> SystemUnderTest:
    """The truth of day 0 under test, beside the training days that a clone is fitted on."""
    encoding = fit_encoding(archive, train_days)
    cluster = replace(encoding.cluster, pace=true_pace(world, encoding.cluster))
    encoding = replace(encoding, cluster=cluster)
    windows = encode_days(archive, encoding, train_days, num_steps=num_steps)
    today = jax.tree.map(np.asarray, conditions(world, 0))
    return SystemUnderTest(
        encoding, windows, today, lambda now: true_answers(world, encoding.cluster, now), 1
    )
