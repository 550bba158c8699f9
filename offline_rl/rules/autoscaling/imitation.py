"""Light students of an autoscaler that plans: its choices, from what each deployment sees of itself.

The planner acts in the first round, the students in the later ones, and the planner says what it would have done where
they came (DAgger; Ross, Gordon and Bagnell 2011). A planner may look at the whole state and remember; students do not.
"""

import jax
import jax.numpy as jnp

from offline_rl.autoscaling.students import (
    Lessons,
    StudentConfig,
    Students,
    lessons_of,
    student_policy,
    train_students,
)
from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import observe
from twin.autoscaling.problem import ScalingAction, action_towards, legal_steps
from twin.contracts import Array, Environment, Policy, PyTree


def students_of(
    key: Array,
    system: Environment,
    config: AutoscalingConfig,
    limits: GrantLimits,
    planner: Autoscaler,
    student: StudentConfig | None = None,
    *,
    rounds: int = 6,
    steps: int = 240,
    streams: int = 8,
) -> Students:
    """Students of a planner.

    Args:
        key: Of chance.
        system: The twin.
        config: When decisions are taken, and how far they reach.
        limits: Of the grants.
        planner: Whom they imitate.
        student: Of the students.
        rounds: Of lessons; from the second on the students act.
        steps: Intervals of a round.
        streams: Copies of the twin in a round.
    """
    student = student or StudentConfig()

    def play(key: Array, acting: Policy | None) -> Lessons:
        key_reset, key_steps = jax.random.split(key)
        first = system.reset(key_reset, (streams,))

        def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], Lessons]:
            state, memory = carry
            key_plan, key_act, key_step = jax.random.split(key, 3)
            seen, legal = observe(config, limits, state.problem), legal_steps(config, state.problem.grants)
            memory, wanted = planner.decide(key_plan, memory, state.problem)
            label = within_reach(action_towards(config, state.problem.grants, wanted), legal)
            action = label if acting is None else acting(key_act, seen, legal)
            state, _ = system.step(key_step, state, action)
            return (state, memory), lessons_of(seen, label, legal)

        begin = first, planner.init(first.problem.grants)
        lessons = jax.lax.scan(one, begin, jax.random.split(key_steps, steps))[1]
        return Lessons(*(jnp.moveaxis(leaf, 0, -1).reshape(*leaf.shape[1:3], -1) for leaf in lessons))

    by_students = jax.jit(lambda key, params: play(key, student_policy(params, student)))
    keys = jax.random.split(key, (rounds, 2))
    lessons = [jax.jit(lambda key: play(key, None))(keys[0, 0])] * rounds  # one shape in all rounds
    students = train_students(keys[0, 1], _joined(lessons), student)
    for place, (key_play, key_fit) in enumerate(keys[1:], 1):
        lessons[place] = by_students(key_play, students.params)
        students = train_students(key_fit, _joined(lessons), student)
    return students


def within_reach(action: ScalingAction, legal: ScalingAction) -> ScalingAction:
    """An action as far as one decision may go."""
    return ScalingAction(
        *(jnp.clip(steps, entry.low, entry.high) for steps, entry in zip(action, legal, strict=True))
    )


def _joined(lessons: list[Lessons]) -> Lessons:
    return Lessons(*(jnp.concatenate(leaves, axis=-1) for leaves in zip(*lessons, strict=True)))
