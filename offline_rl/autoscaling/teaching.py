"""The teacher: TD3 over all deployments in the twin; and how students are taught by it.

The first lessons are states that the teacher reaches. Students reach others, so that in later rounds the students act
and the teacher says what it would have done there (DAgger; Ross, Gordon and Bagnell 2011).
"""

from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp

from offline_rl.algorithms.td3 import TD3Config, td3
from offline_rl.autoscaling.students import (
    Lessons,
    StudentConfig,
    Students,
    learned_in_rounds,
    lessons_of,
    student_policy,
    taught,
    train_students,
)
from offline_rl.deterministic import DeterministicNetworks
from offline_rl.networks import example_of
from offline_rl.selecting import train_kept
from offline_rl.training_loop import in_twin
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.observing import Seen
from twin.autoscaling.problem import ScalingAction
from twin.contracts import Array, Environment, Policy, PyTree
from twin.networks import MLP
from twin.rollout import rollout

NUM_ROUNDS, NUM_STEPS, NUM_STREAMS = 6, 240, 8
"""Of lessons (from the second on the students act); intervals of a round; copies of the twin in a round."""
HORIZON_S, HIDDEN = 300.0, (64, 64)
"""Of every network for all deployments, however it learns: so all are played and handed over alike."""
UPDATES_PER_SAVE = 25
"""Of a teacher that is kept on the way: all of its experience is saved with it."""


@dataclass(frozen=True)
class TeacherConfig:
    """How a teacher is trained.

    Attributes:
        updates: Trajectories collected.
        streams: Copies of the twin side by side.
        steps: Intervals of a trajectory.
        td3: How it learns from them.
    """

    updates: int = 150
    streams: int = 32
    steps: int = 40
    td3: TD3Config = field(
        default_factory=lambda: TD3Config(
            horizon_s=HORIZON_S, capacity=60_000, batch=128, updates=20, exploration=0.35, random_share=0.15,
            target_rate=0.01, learning_rate=1e-3, hidden=HIDDEN,
        )
    )  # fmt: skip


def train_teacher(
    key: Array,
    environment: Environment,
    config: TeacherConfig,
    checkpoint: Path | None = None,
) -> tuple[PyTree, PyTree]:
    """The teacher's parameters, and curves of its training; `checkpoint` as of `train_kept`."""
    algorithm = td3(example_of(environment), config.td3)
    experience = in_twin(environment, config.steps, (config.streams,))
    state, info = train_kept(key, algorithm, experience, config.updates, checkpoint, UPDATES_PER_SAVE)
    return state.params.actor, info


def teacher_policy(actor: PyTree, config: TeacherConfig | None = None) -> Policy:
    """The teacher as it is deployed."""
    hidden = (config or TeacherConfig()).td3.hidden
    return DeterministicNetworks(MLP(hidden, len(ScalingAction._fields)), MLP(hidden, 1), 0).policy(actor)


def teach(
    key: Array,
    environment: Environment,
    scaling: AutoscalingConfig,
    teacher: Policy,
    config: StudentConfig,
) -> Students:
    """Students of a teacher."""
    label = taught(teacher, scaling.reach)

    def play(key: Array, acting: Policy) -> Lessons:
        trajectory = rollout(key, environment, acting, NUM_STEPS, (NUM_STREAMS,))
        seen = Seen(*(jnp.moveaxis(leaf, 0, -2) for leaf in trajectory.observation))
        legal = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), trajectory.legal)
        return lessons_of(seen, label(seen), legal)

    by_students = jax.jit(lambda key, params: play(key, student_policy(params, config)))
    return learned_in_rounds(
        key,
        NUM_ROUNDS,
        jax.jit(lambda key: play(key, teacher)),
        lambda key, students: by_students(key, students.params),
        lambda key, lessons, _before: train_students(key, lessons, config),
    )
