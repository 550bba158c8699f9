"""A placement system whose answers follow one known rule, so that the best decision is known.

Every service has a favourite node. A request runs 1 s there and 10 s anywhere else, after an agent has
accepted the offer; deadlines are 5 s, so the best policy offers the favourite and every accepted request is
on time.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from tests.twin.made import made_cluster
from twin.contracts import Array, Environment, Streams
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.placement.responses import Answers, Arrivals, First, Next, Pending, drawn_response
from twin.placement.types import COMPLETED, REJECTED, UNKNOWN, Fate, PlacementState, Requests

CLUSTER = made_cluster(num_edge=3, num_sites=2, num_services=4)
CONFIG = PlacementConfig(depth=40, time_unit_s=1.0, memory_s=30.0)
ACCEPTED = 0.9
FAVOURITE = np.array([3, 1, 2, 3])
"""Node that suits each service; never the first, which the second candidate rule forbids."""


def mechanical(*, length: int, drawn: bool = True, depth: int = CONFIG.depth) -> Environment:
    """The environment; without `drawn` every request follows from its number alone, and all offers are
    accepted. Shallow tables compile faster."""
    config = replace(CONFIG, depth=depth)

    def request_of(key: Array, number: Array) -> Requests:
        streams = number.shape
        shape = (1, *streams)

        def index(key: Array, choices: int) -> Array:
            value = jax.random.randint(key, shape, 0, choices) if drawn else (number % choices)[None]
            return value.astype(jnp.int32)

        key_site, key_service, key_rule, key_demand = jax.random.split(key, 4)
        zero, one = jnp.zeros(shape, jnp.int32), jnp.ones(shape)
        cores = 0.5 + 0.5 * index(key_demand, 2)
        return Requests(
            site=index(key_site, 2),
            scenario=zero,
            service=index(key_service, 4),
            queue=zero,
            agent=zero,
            rule=index(key_rule, 2),
            demand=jnp.stack([cores, cores, 0.0 * one]),
            num_nodes=one,
            expected_run_s=one,
            deadline_s=5.0 * one,
            input_mib=0.0 * one,
            day_fraction=0.5 * one,
            week_fraction=0.5 * one,
            accepts_home=one,
            accepts_elsewhere=one,
            accepts_cloud=one,
        )

    def init(key: Array, streams: Streams) -> tuple[Array, First]:
        number = jnp.zeros(streams, jnp.int32)
        done = number >= length
        request = request_of(key, number)
        return number, First(jnp.zeros(streams), request, jnp.broadcast_to(~done[None], (1, *streams)), done)

    def following(
        key: Array, number: Array, state: PlacementState, _fate: Fate, _pending: Pending
    ) -> tuple[Array, Next]:
        key_request, key_gap = jax.random.split(key)
        gap_s = jax.random.exponential(key_gap, number.shape) if drawn else 0.5 + (number % 3)
        number = number + 1
        done = number >= length
        request = request_of(key_request, number)
        return number, Next(state.clock_s + gap_s, request, ~done[None], done)

    def answer(
        key: Array, memory: Array, state: PlacementState, node: Array, _note: None
    ) -> tuple[Array, Fate]:
        favourite = jnp.asarray(FAVOURITE)[state.request.service]
        uniform = jax.random.uniform(key, node.shape) if drawn else jnp.zeros(node.shape)
        accepted = (uniform < ACCEPTED) & state.active
        start_s = jnp.where(accepted, state.clock_s[None], jnp.inf)
        finish_s = start_s + jnp.where(node == favourite, 1.0, 10.0)
        status = jnp.where(accepted, COMPLETED, jnp.where(state.active, REJECTED, UNKNOWN)).astype(jnp.int32)
        return memory, Fate(accepted, start_s, finish_s, status)

    answers = Answers(lambda _key, streams: jnp.zeros(streams), answer)
    response = drawn_response(CLUSTER, depth, Arrivals(init, following), answers)
    return environment(placement(CLUSTER, config), response)
