"""Students learn what their teacher does from what they see of themselves, and stay small."""

import jax
import jax.numpy as jnp
import pytest

from offline_rl.autoscaling.students import (
    MOST_PARAMETERS,
    Lessons,
    StudentConfig,
    num_parameters,
    student_policy,
    train_students,
)
from offline_rl.errors import TrainingError
from twin.autoscaling.observing import LOCAL_FEATURES, Seen
from twin.autoscaling.problem import ScalingAction
from twin.contracts import Interval

KEY = jax.random.key(0)
REACH = 2.0


def made_lessons(discrete):
    """Deployment 0 follows its first feature, deployment 1 goes against it."""
    local = jax.random.uniform(KEY, (len(LOCAL_FEATURES), 2, 800), minval=-1.0)
    wish = jnp.stack([local[0, 0], -local[0, 1]])
    return Lessons(
        local, jnp.stack([wish, 0.0 * wish, jnp.sign(wish)]) if not discrete else jnp.stack([wish] * 3)
    )


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, True])
def test_students_do_as_their_own_teacher(discrete):
    config = StudentConfig(discrete=discrete, updates=600)
    lessons = made_lessons(discrete)
    students = train_students(KEY, lessons, config)
    assert float(students.loss[-20:].mean()) < 0.3 * float(students.loss[:5].mean())
    local = lessons.local[..., :200]
    legal = ScalingAction(*(Interval(jnp.full((2, 200), -REACH), jnp.full((2, 200), REACH)),) * 3)
    action = student_policy(students.params, config)(KEY, Seen(local, local, local), legal)
    wished = lessons.place[0, :, :200]
    if discrete:
        step = jnp.where(jnp.abs(wished) > 0.5, jnp.sign(wished), 0.0)
        assert float(jnp.mean(action.cpu == REACH * step)) > 0.85
    else:
        assert float(jnp.mean(jnp.abs(action.cpu / REACH - wished))) < 0.12
        assert float(jnp.max(jnp.abs(action.memory))) < 0.6


def test_students_are_small():
    config = StudentConfig(discrete=True, updates=1)
    params = train_students(KEY, made_lessons(True), config).params
    counted = sum(leaf[0].size for leaf in jax.tree.leaves(params))
    assert counted == num_parameters(config) <= MOST_PARAMETERS
    with pytest.raises(TrainingError, match="1000 at most"):
        train_students(KEY, made_lessons(False), StudentConfig(hidden=(64, 64)))
