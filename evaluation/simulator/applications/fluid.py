"""An application as array code: one interval of all its stations, in any number of streams at once.

An interval is cut into steps. In each, users' rates flow through the call graphs, stations pass time (`stations`),
replicas that were ordered become ready, replicas whose calls need more memory than granted restart. What the interval
was like is measured as monitoring measures it: means, and a histogram of the users' response times.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.applications import graph, stations
from evaluation.simulator.applications.application import Application
from twin.autoscaling.types import LATENCY_S, DeploymentMetrics, GatewayMetrics, Grants
from twin.contracts import Array

STEP_S = 5.0
"""Steps of an interval are at most so long."""


class Services(NamedTuple):
    """The services of an application as arrays [services]."""

    work_s: Array
    parallelism: Array
    memory_gib: Array
    memory_per_call_gib: Array
    start_up_s: Array
    connections: Array

    @staticmethod
    def of(application: Application) -> "Services":
        """Of an application."""
        return Services(
            *(
                jnp.asarray([getattr(service, name) for service in application.services], jnp.float32)
                for name in Services._fields
            )
        )


class RunningServices(NamedTuple):
    """What runs; leaves [services, *streams]."""

    number: Array  # calls in a service, over all its replicas
    ready: Array  # replicas that take calls; a fraction while some restart
    starting: Array  # [starts, services, *streams] replicas that are ready after so many steps
    passing: Array  # completed as a share of arrived, in the last step


class Measurement(NamedTuple):
    """An interval."""

    measured: DeploymentMetrics
    gateway: GatewayMetrics


Play = Callable[[RunningServices, Grants, Array, Array], tuple[RunningServices, Measurement]]
"""(running, grants, rates [users, *streams], speed [services, *streams]) -> running, measurement of an interval."""


def steps_of(interval_s: float) -> tuple[int, float]:
    """Number and length of the steps of an interval."""
    number = max(int(np.ceil(interval_s / STEP_S)), 1)
    return number, interval_s / number


def num_starts(application: Application, dt_s: float) -> int:
    """Steps that the slowest start takes."""
    return max(int(np.ceil(max(service.start_up_s for service in application.services) / dt_s)), 1)


def at_rest(application: Application, grants: Grants, dt_s: float) -> RunningServices:
    """All replicas ready, nothing to do."""
    zeros = jnp.zeros_like(grants.replicas)
    starting = jnp.zeros((num_starts(application, dt_s), *zeros.shape))
    return RunningServices(zeros, grants.replicas, starting, jnp.ones_like(zeros))


def interval(application: Application, interval_s: float) -> Play:
    """How an application spends an interval."""
    services, nodes = Services.of(application), graph.nodes_of(application)
    arrivals_of = graph.flows(nodes, len(application.services))
    num_steps, dt_s = steps_of(interval_s)
    edges = jnp.asarray(LATENCY_S, jnp.float32)
    num_calls = jnp.asarray(graph.visits(application), jnp.float32)

    def step(
        running: RunningServices, grants: Grants, rates: Array, speed: Array
    ) -> tuple[RunningServices, Measurement]:
        running, lost_per_s = _replicas(application, services, running, grants, dt_s)
        on = (grants.replicas > 0.0).astype(jnp.float32)
        arriving = arrivals_of(rates, running.passing, on)
        ready = jnp.maximum(running.ready, 1e-3)
        along = (-1,) + (1,) * (rates.ndim - 1)
        cores = jnp.clip(
            jnp.minimum(grants.cpu_cores, services.parallelism.reshape(along)), 0.01, stations.MOST_CORES
        )
        work_s = services.work_s.reshape(along) / speed
        most = services.connections.reshape(along)
        passed = stations.pass_time(
            running.number / ready, arriving / ready, cores / work_s, cores, most, dt_s
        )
        service_s = work_s / jnp.minimum(cores, 1.0)
        mean_s, variance = stations.sojourn(passed.number, passed.done_per_s, service_s, most)
        refused = passed.refused_per_s * ready + lost_per_s
        passing = jnp.clip(passed.done_per_s * ready / jnp.maximum(arriving, 1e-6), 0.0, 3.0)
        running = running._replace(
            number=passed.number * ready, passing=jnp.where(arriving > 1e-6, passing, 1.0)
        )
        memory = (
            services.memory_gib.reshape(along) + services.memory_per_call_gib.reshape(along) * passed.number
        )
        measured = DeploymentMetrics(
            arriving, passed.done_per_s * work_s, memory, running.ready, mean_s, refused * dt_s
        )
        failing = jnp.clip(refused / jnp.maximum(arriving, 1e-6), 0.0, 1.0)
        return running, Measurement(measured, gateway(rates, mean_s, variance, failing, on))

    def gateway(rates: Array, mean_s: Array, variance: Array, failing: Array, on: Array) -> GatewayMetrics:
        answered, time_s = jnp.zeros_like(rates[0]), jnp.zeros_like(rates[0])
        latency = jnp.zeros((len(LATENCY_S) + 1, *rates.shape[1:]))
        for user, kind in enumerate(application.users):
            mean, spread = graph.end_to_end(application, kind.root, mean_s, variance, on)
            along = (-1,) + (1,) * mean.ndim
            survives = jnp.exp(
                jnp.sum(
                    num_calls[user].reshape(along) * on * jnp.log(jnp.maximum(1.0 - failing, 1e-6)), axis=0
                )
            )
            below = graph.gamma_share_below(edges, mean, spread)
            last = graph.gamma_share_below(jnp.asarray([application.timeout_s], jnp.float32), mean, spread)
            below = jnp.minimum(below, last)
            counts = jnp.diff(below, axis=0, prepend=0.0, append=last) * (rates[user] * survives * dt_s)[None]
            latency = latency + counts
            answered = answered + rates[user] * survives * last[0] * dt_s
            time_s = (
                time_s + jnp.minimum(mean, application.timeout_s) * rates[user] * survives * last[0] * dt_s
            )
        offered = jnp.sum(rates, axis=0)
        return GatewayMetrics(
            offered, time_s / jnp.maximum(answered, 1e-6), offered * dt_s - answered, latency
        )

    def play(
        running: RunningServices, grants: Grants, rates: Array, speed: Array
    ) -> tuple[RunningServices, Measurement]:
        def one(running: RunningServices, _: None) -> tuple[RunningServices, Measurement]:
            return step(running, grants, rates, speed)

        running, parts = jax.lax.scan(one, running, None, length=num_steps)
        return running, _averaged(parts)

    return play


def _averaged(parts: Measurement) -> Measurement:
    """The measurement of an interval from those of its steps, leaves [steps, ...]."""
    measured, gateway = parts.measured, parts.gateway
    weight = measured.rate_per_s + 1e-9
    answered = jnp.sum(gateway.latency, axis=1) + 1e-9
    return Measurement(
        DeploymentMetrics(
            jnp.mean(measured.rate_per_s, axis=0),
            jnp.mean(measured.cpu_cores_used, axis=0),
            jnp.mean(measured.memory_gib_used, axis=0),
            jnp.mean(measured.ready, axis=0),
            jnp.sum(measured.response_s * weight, axis=0) / jnp.sum(weight, axis=0),
            jnp.sum(measured.num_failures, axis=0),
        ),
        GatewayMetrics(
            jnp.mean(gateway.rate_per_s, axis=0),
            jnp.sum(gateway.response_s * answered, axis=0) / jnp.sum(answered, axis=0),
            jnp.sum(gateway.num_failures, axis=0),
            jnp.sum(gateway.latency, axis=0),
        ),
    )


def _replicas(
    application: Application, services: Services, running: RunningServices, grants: Grants, dt_s: float
) -> tuple[RunningServices, Array]:
    """The running replicas after orders, starts, removals and restarts of a step; and calls lost a second by restarts.

    Removals take replicas that are still starting first. Orders beyond the cluster's cores stay pending: every
    deployment gets the same share of its requested replicas beyond the running ones.
    """
    arrived = running.starting[0]
    ready = running.ready + arrived
    starting = jnp.concatenate([running.starting[1:], jnp.zeros_like(arrived)[None]])
    coming = jnp.sum(starting, axis=0)
    fewer = jnp.maximum(ready + coming - grants.replicas, 0.0)
    withdrawn = jnp.minimum(fewer, coming)
    starting = starting * (1.0 - withdrawn / jnp.maximum(coming, 1e-6))[None]
    ready = ready - (fewer - withdrawn)
    more = jnp.maximum(grants.replicas - ready - jnp.sum(starting, axis=0), 0.0)
    free = application.cluster_cores - jnp.sum((ready + jnp.sum(starting, axis=0)) * grants.cpu_cores, axis=0)
    fits = jnp.clip(free / jnp.maximum(jnp.sum(more * grants.cpu_cores, axis=0), 1e-6), 0.0, 1.0)
    along = (-1,) + (1,) * (ready.ndim - 1)
    in_replica = running.number / jnp.maximum(ready, 1e-3)
    needed = services.memory_gib.reshape(along) + services.memory_per_call_gib.reshape(along) * in_replica
    restarts = ready * jnp.clip(4.0 * (needed / jnp.maximum(grants.memory_gib, 1e-3) - 1.0), 0.0, 0.5)
    starts = more * fits[None] + restarts
    slot = np.minimum(
        np.ceil(np.asarray([one.start_up_s for one in application.services]) / dt_s), len(starting)
    )
    which = np.arange(1, len(starting) + 1)[:, None] == slot[None]
    starting = starting + starts[None] * jnp.asarray(which, jnp.float32).reshape(*which.shape, *along[1:])
    lost = running.number * restarts / jnp.maximum(ready, 1e-3)
    left = RunningServices(running.number - lost, ready - restarts, starting, running.passing)
    return left, lost / dt_s
