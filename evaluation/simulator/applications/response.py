"""The truth as a Response: what an application answers to grants, interval by interval."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.applications import fluid
from evaluation.simulator.applications.application import Application
from evaluation.simulator.applications.graph import visits
from logs_schema.calendar import DAY_S
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.problem import ScalingAction, rescaled
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants, ScalingEvents
from twin.contracts import Array, Outcome, PyTree, Response, Streams

MEASURED_NOISE = 0.03
"""Deviation of the logarithm of measured use and response times."""


class ApplicationState(NamedTuple):
    """The private state of the response."""

    running: fluid.RunningServices
    row: Array  # [*streams] of the rates, of the next interval
    left: Array  # [*streams] intervals until the episode is cut
    speed: Array  # [services, *streams] logarithm, slow noise


def limits_of(application: Application) -> GrantLimits:
    """What deployments of an application may be granted."""
    services = application.services

    def each(values: list[float]) -> Array:
        return jnp.asarray(values, jnp.float32)

    return GrantLimits(
        each([0.25 for _ in services]),
        each([float(min(service.parallelism, 4)) for service in services]),
        each([np.ceil(service.memory_gib / 0.125) * 0.125 for service in services]),
        each(
            [
                service.memory_gib + 4.0 * service.memory_per_call_gib * service.connections
                for service in services
            ]
        ),
        each([0.0 if service.optional else 1.0 for service in services]),
        each([float(application.max_replicas) for _ in services]),
    )


def usual_grants(application: Application, rates: np.ndarray) -> Grants:
    """Half a core a replica, and replicas for a mean use of one half; leaves [services]. Where an operator begins."""
    share = rates.mean(axis=0) @ visits(application)
    work = np.array([service.work_s for service in application.services])
    replicas = np.clip(np.ceil(share * work / (0.5 * 0.5)), 1, application.max_replicas)
    memory = [
        service.memory_gib + 1.2 * service.memory_per_call_gib * service.connections
        for service in application.services
    ]
    return Grants(
        jnp.full(len(work), 0.5), jnp.asarray(memory, jnp.float32), jnp.asarray(replicas, jnp.float32)
    )


def application_response(
    application: Application,
    config: AutoscalingConfig,
    rates: np.ndarray,
    length: int,
    *,
    grants: Grants | None = None,
    starts: np.ndarray | None = None,
    limits: GrantLimits | None = None,
) -> Response:
    """How an application answers.

    Args:
        application: Which.
        config: Interval and steps of decisions.
        rates: [rows, users] an interval each, from midnight on.
        length: Intervals of an episode, which is cut short then.
        grants: In force at the beginning, leaves [services]; `usual_grants` if not given.
        starts: [*streams] first rows of the episodes; drawn uniformly if not given.
        limits: Of the grants; those of the application if not given.
    """
    begin = usual_grants(application, rates) if grants is None else grants
    limits = limits_of(application) if limits is None else limits
    play = fluid.interval(application, config.interval_s)
    table = jnp.asarray(rates, jnp.float32)
    _, dt_s = fluid.steps_of(config.interval_s)
    keeps = float(np.exp(-config.interval_s / 600.0))

    def one(key: Array, private: ApplicationState, granted: Grants) -> tuple[ApplicationState, ScalingEvents]:
        key_speed, key_cpu, key_response = jax.random.split(key, 3)
        offered = jnp.moveaxis(table[private.row % len(table)], -1, 0)
        speed = keeps * private.speed + np.sqrt(1.0 - keeps**2) * application.noise * jax.random.normal(
            key_speed, private.speed.shape
        )
        running, seen = play(private.running, granted, offered, jnp.exp(speed))
        measured = seen.measured

        def noisy(key: Array, value: Array) -> Array:
            return value * jnp.exp(MEASURED_NOISE * jax.random.normal(key, value.shape))

        measured = measured._replace(
            cpu_cores_used=noisy(key_cpu, measured.cpu_cores_used),
            response_s=noisy(key_response, measured.response_s),
        )
        time_s = ((private.row + 1) * config.interval_s) % DAY_S
        events = ScalingEvents(granted, measured, seen.gateway, time_s)
        return ApplicationState(running, private.row + 1, private.left - 1, speed), events

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        key_start, key_speed, key_first = jax.random.split(key, 3)
        shape = (len(application.services), *streams)
        granted = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf.reshape((-1,) + (1,) * len(streams)), shape), begin
        )
        if starts is None:
            row = jax.random.randint(key_start, streams, 0, max(len(rates) - length - 1, 1))
        else:
            row = jnp.broadcast_to(jnp.asarray(starts, jnp.int32), streams)
        speed = application.noise * jax.random.normal(key_speed, shape)
        running = fluid.at_rest(application, granted, dt_s)
        private = ApplicationState(running, row, jnp.full(streams, length + 1, jnp.int32), speed)
        private, events = one(key_first, private, granted)
        no = jnp.zeros(streams, bool)
        return private, Outcome(jnp.zeros(streams), no, no, events)

    def advance(
        key: Array, private: ApplicationState, state: ScalingState, action: ScalingAction
    ) -> tuple[PyTree, Outcome]:
        private, events = one(key, private, rescaled(config, limits, state.grants, action))
        no = jnp.zeros(private.left.shape, bool)
        elapsed_s = jnp.full(private.left.shape, config.interval_s)
        return private, Outcome(elapsed_s, no, private.left <= 0, events)

    return Response(init, advance, lambda _private, state: state)
