"""FIRM (Qiu et al. 2020): a support vector machine finds the deployment that slows requests, DDPG scales it.

    relative importance   correlation of a deployment's time in a request with the whole of it, over the window
    congestion            its response time now over the median of the window
    share                 of the request's time: who lies on the critical path (metrics do not tell the path itself)

The machine learns in the twin from faults that are put in: deployments lose most of their replicas now and then, and
are to blame while the objective is broken. DDPG is TD3 whose policy moves at every update and whose target actions
carry no noise; it sees what one deployment sees of itself, and which one it is (the publication's shared agent).
It may do anything where the fault is found, and only take grants back elsewhere.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from offline_rl.autoscaling.teaching import TeacherConfig, teacher_policy, train_teacher
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, free_config
from offline_rl.rules.autoscaling.horizontal_pod import horizontal_pod
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import Seen, observe
from twin.autoscaling.problem import ScalingAction, action_towards, autoscaling_problem, legal_steps, rescaled
from twin.autoscaling.rewards import Reward
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants, quantile_s
from twin.contracts import Array, Policy, Response
from twin.environment import environment

AT_FAULT, REDRAWN = 0.15, 0.05
"""Share of deployments that lose replicas, and share of intervals in which others do."""
LEFT = 0.4
"""Share of its replicas that a deployment at fault keeps."""


class CriticalPathConfig(NamedTuple):
    """How it is learned: intervals and streams of the faults put in, trajectories of DDPG."""

    steps: int = 600
    streams: int = 16
    updates: int = 60


class Locator(NamedTuple):
    """A linear support vector machine: a deployment is to blame where `signs . weight + bias` is positive."""

    weight: Array  # [signs]
    bias: Array  # []


class CriticalPath(NamedTuple):
    """What was learned."""

    locator: Locator
    policy: Policy


def learn_critical_path(
    key: Array,
    response: Response,
    config: AutoscalingConfig,
    limits: GrantLimits,
    reward: Reward,
) -> CriticalPath:
    """Learns both parts in the twin that `response` answers for.

    Raises:
        ConfigError: No fault put in breaks the objective, so that there is nothing to learn from.
    """
    settings = CriticalPathConfig()
    key_faults, key_agent = jax.random.split(key)
    locator = fit_locator(*_faults(key_faults, response, config, limits, reward, settings))
    problem = autoscaling_problem(config, limits, reward)
    problem = problem._replace(observe=lambda state: local_only(observe(config, limits, state)))
    system = environment(problem, response)
    agent = TeacherConfig(updates=settings.updates)
    agent = replace(agent, td3=replace(agent.td3, policy_every=1, noise=0.0))
    params, _ = train_teacher(key_agent, system, agent)
    return CriticalPath(locator, teacher_policy(params, agent))


def critical_path(config: AutoscalingConfig, limits: GrantLimits, learned: CriticalPath) -> Autoscaler:
    """The autoscaler."""

    def decide(key: Array, memory: tuple, state: ScalingState) -> tuple[tuple, Grants]:
        seen = local_only(observe(config, limits, state))
        action = learned.policy(key, seen, legal_steps(config, state.grants))
        blamed = to_blame(learned.locator, signs(config, state)) & broken(config, state)[None]
        held = ScalingAction(*(jnp.where(blamed, steps, jnp.minimum(steps, 0.0)) for steps in action))
        return memory, rescaled(config, limits, state.grants, held)

    return Autoscaler(lambda grants: (), decide)


def signs(config: AutoscalingConfig, state: ScalingState) -> Array:
    """[signs, deployments, *streams] importance, congestion and share, of the metrics that are known by now."""
    past = jax.tree.map(lambda leaf: leaf[: config.window - config.delay_intervals], state.window)
    requests = jnp.maximum(past.gateway.rate_per_s, 1e-6)[:, None]
    time_s = past.measured.rate_per_s * past.measured.response_s / requests
    both = time_s, past.gateway.response_s[:, None]
    own, whole = (leaf - jnp.mean(leaf, axis=0, keepdims=True) for leaf in both)
    spread = jnp.sqrt(jnp.sum(own**2, axis=0) * jnp.sum(whole**2, axis=0))
    importance = jnp.sum(own * whole, axis=0) / jnp.maximum(spread, 1e-12)
    response_s = past.measured.response_s
    congestion = jnp.log((response_s[-1] + 1e-6) / (jnp.median(response_s, axis=0) + 1e-6))
    share = time_s[-1] / jnp.maximum(jnp.sum(time_s[-1], axis=0, keepdims=True), 1e-9)
    return jnp.stack([importance, jnp.clip(congestion, -3.0, 3.0), share])


def broken(config: AutoscalingConfig, state: ScalingState) -> Array:
    """[*streams] bool: the latest interval that is known has not kept the objective."""
    return quantile_s(known(config, state).gateway.latency, config.slo_share) > config.slo_s


def to_blame(locator: Locator, found: Array) -> Array:
    """[deployments, *streams] bool, of signs [signs, deployments, *streams]."""
    return jnp.tensordot(locator.weight, found, axes=1) + locator.bias > 0.0


def fit_locator(found: np.ndarray, blame: np.ndarray) -> Locator:
    """The machine, of signs [samples, signs] and whether each was to blame [samples].

    Raises:
        ConfigError: None of them was, or all.
    """
    if blame.all() or not blame.any():
        raise ConfigError(
            "no deployment that loses replicas in the twin breaks the objective alone",
            where="autoscaler firm",
            allowed="an objective that some intervals keep and others break",
            advice="choose another objective",
        )
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    scaler = StandardScaler().fit(found)
    machine = LinearSVC(class_weight="balanced", random_state=0).fit(scaler.transform(found), blame)
    weight = machine.coef_[0] / scaler.scale_
    bias = machine.intercept_[0] - float(weight @ scaler.mean_)
    return Locator(jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32))


def local_only(seen: Seen) -> Seen:
    """What a deployment sees of itself, and which one it is."""
    return seen._replace(shared=jnp.zeros_like(seen.shared))


def _faults(
    key: Array,
    response: Response,
    config: AutoscalingConfig,
    limits: GrantLimits,
    reward: Reward,
    settings: CriticalPathConfig,
) -> tuple[np.ndarray, np.ndarray]:
    """Signs [samples, signs] and blame [samples], where the pod autoscaler rules and faults are put in."""
    free = free_config(config)
    system = environment(autoscaling_problem(free, limits, reward), response)
    rule = horizontal_pod(config, limits)

    def one(carry: tuple, key: Array) -> tuple[tuple, tuple[Array, Array]]:
        state, memory, past = carry
        faulty = past[-1]
        key_redraw, key_fault, key_step = jax.random.split(key, 3)
        redrawn = jax.random.uniform(key_redraw, faulty.shape[1:]) < REDRAWN
        drawn = jax.random.uniform(key_fault, faulty.shape) < AT_FAULT
        faulty = jnp.where(redrawn[None], drawn, faulty)
        memory, wanted = rule.decide(key_step, memory, state.problem)
        fewer = jnp.maximum(jnp.round(LEFT * wanted.replicas), 1.0)
        wanted = wanted._replace(replicas=jnp.where(faulty, fewer, wanted.replicas))
        state, _ = system.step(key_step, state, action_towards(free, state.problem.grants, wanted))
        past = jnp.concatenate([past[1:], faulty[None]])
        # Of the interval whose metrics are known by now
        blame = past[0] & broken(config, state.problem)[None]
        return (state, memory, past), (signs(config, state.problem), blame)

    @jax.jit
    def play(key: Array) -> tuple[Array, Array]:
        key_reset, key_steps = jax.random.split(key)
        first = system.reset(key_reset, (settings.streams,))
        grants = first.problem.grants
        past = jnp.zeros((config.delay_intervals + 1, *grants.replicas.shape), bool)
        begin = first, rule.init(grants), past
        return jax.lax.scan(one, begin, jax.random.split(key_steps, settings.steps))[1]

    found, blame = play(key)
    found = np.moveaxis(np.asarray(found[config.window :]), 1, -1)
    return found.reshape(-1, found.shape[-1]), np.asarray(blame[config.window :]).reshape(-1)
