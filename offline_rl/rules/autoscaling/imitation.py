"""Policies that imitate an autoscaler that plans: one network for all deployments, or a light student for each.

The planner acts in the first round, its pupils in the later ones, and the planner says what it would have done where
they came (DAgger; Ross, Gordon and Bagnell 2011). A planner may look at the whole state and remember; pupils do not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import optax

from offline_rl.autoscaling.students import (
    Learned,
    Lessons,
    StudentConfig,
    Students,
    learned_in_rounds,
    lessons_of,
    student_policy,
    train_students,
)
from offline_rl.autoscaling.teaching import TeacherConfig, teacher_policy
from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import Seen, observe
from twin.autoscaling.problem import ScalingAction, action_towards, legal_steps
from twin.contracts import Array, Environment, Policy, PyTree
from twin.descent import descend_in_batches
from twin.networks import MLP, apply, flatten_features


@dataclass(frozen=True)
class PlannerImitationConfig:
    """How a planner is imitated.

    Attributes:
        rounds: Of lessons; from the second on the pupils act.
        steps: Intervals of a round.
        streams: Copies of the twin in a round.
        updates: Steps of gradient descent of the network for all deployments, in every round.
        batch: Decisions of a step.
        learning_rate: Of Adam, falling to zero by a cosine.
    """

    rounds: int = 10
    steps: int = 80
    streams: int = 60
    updates: int = 2000
    batch: int = 1024
    learning_rate: float = 3e-3


LIGHT = PlannerImitationConfig(rounds=6, steps=240, streams=8)
"""For students: fewer episodes, and longer ones."""


def students_of(
    key: Array,
    system: Environment,
    config: AutoscalingConfig,
    limits: GrantLimits,
    planner: Autoscaler,
    student: StudentConfig | None = None,
) -> Students:
    """Light students of a planner, which see their own deployment alone.

    Args:
        key: Of chance.
        system: The twin.
        config: When decisions are taken, and how far they reach.
        limits: Of the grants.
        planner: Whom they imitate.
        student: Of the students.
    """
    student = student or StudentConfig()
    return _in_rounds(
        key,
        system,
        config,
        limits,
        planner,
        LIGHT,
        lessons_of,
        lambda key, lessons, _before: train_students(key, lessons, student),
        lambda students: student_policy(students.params, student),
    )


def teacher_of(
    key: Array, system: Environment, config: AutoscalingConfig, limits: GrantLimits, planner: Autoscaler
) -> PyTree:
    """The parameters of a teacher (`offline_rl.autoscaling.teaching.teacher_policy`) that imitates a planner; arguments
    as those of `students_of`."""
    how = PlannerImitationConfig()

    def central(seen: Seen, action: ScalingAction, legal: ScalingAction) -> Lessons:
        whole = flatten_features(seen, 2)
        return lessons_of(seen._replace(local=whole), action, legal)

    def train(key: Array, lessons: Lessons, before: PyTree) -> PyTree:
        key_init, key_updates = jax.random.split(key)
        first = _central_network().init(key_init, lessons.local[:, 0, :1]) if before is None else before
        return _descent(how)(first, lessons, key_updates)

    return _in_rounds(key, system, config, limits, planner, how, central, train, teacher_policy)


def _in_rounds(
    key: Array,
    system: Environment,
    config: AutoscalingConfig,
    limits: GrantLimits,
    planner: Autoscaler,
    how: PlannerImitationConfig,
    taken: Callable[[Seen, ScalingAction, ScalingAction], Lessons],
    train: Callable[[Array, Lessons, Learned | None], Learned],
    policy_of: Callable[[Learned], Policy],
) -> Learned:
    """What is learned in the last round, of lessons `taken` from observations and the planner's actions."""

    def play(key: Array, acting: Policy | None) -> Lessons:
        key_reset, key_steps = jax.random.split(key)
        first = system.reset(key_reset, (how.streams,))

        def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], Lessons]:
            state, memory = carry
            key_plan, key_act, key_step = jax.random.split(key, 3)
            seen, legal = observe(config, limits, state.problem), legal_steps(config, state.problem.grants)
            memory, wanted = planner.decide(key_plan, memory, state.problem)
            label = within_reach(action_towards(config, state.problem.grants, wanted), legal)
            action = label if acting is None else acting(key_act, seen, legal)
            state, _ = system.step(key_step, state, action)
            return (state, memory), taken(seen, label, legal)

        begin = first, planner.init(first.problem.grants)
        lessons = jax.lax.scan(one, begin, jax.random.split(key_steps, how.steps))[1]
        return Lessons(*(jnp.moveaxis(leaf, 0, -1).reshape(*leaf.shape[1:3], -1) for leaf in lessons))

    by_pupils = jax.jit(lambda key, learned: play(key, policy_of(learned)))
    return learned_in_rounds(key, how.rounds, jax.jit(lambda key: play(key, None)), by_pupils, train)


def within_reach(action: ScalingAction, legal: ScalingAction) -> ScalingAction:
    """An action as far as one decision may go."""
    return ScalingAction(
        *(jnp.clip(steps, entry.low, entry.high) for steps, entry in zip(action, legal, strict=True))
    )


def _central_network() -> MLP:
    return MLP(TeacherConfig().td3.hidden, len(ScalingAction._fields))


@lru_cache(maxsize=4)  # all who learn alike share one traced program
def _descent(how: PlannerImitationConfig) -> Callable[[PyTree, Lessons, Array], PyTree]:
    network = _central_network()
    optimizer = optax.adam(optax.cosine_decay_schedule(how.learning_rate, how.updates))

    def loss(params: PyTree, lessons: Lessons) -> Array:
        place = jnp.tanh(apply(network, params, lessons.local))
        return jnp.mean((place - jnp.clip(lessons.place, -1.0, 1.0)) ** 2)

    @jax.jit
    def run(params: PyTree, lessons: Lessons, key: Array) -> PyTree:
        each = Lessons(*(leaf.reshape(leaf.shape[0], -1) for leaf in lessons))  # [features, decisions]

        def some(key: Array) -> Lessons:
            chosen = jax.random.randint(key, (how.batch,), 0, each.local.shape[-1])
            return Lessons(each.local[:, chosen], each.place[:, chosen])

        return descend_in_batches(optimizer, loss, some, jax.random.split(key, how.updates), params)[0]

    return run
