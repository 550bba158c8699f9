"""What is learned for paper DRPC's comparison: teachers, their students, and a clone of the log, one for each seed.

Everything is trained in the twin, or from the log; each kind is a product of its own.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from evaluation.autoscalers.autoscaler import Autoscaler, learned
from evaluation.autoscalers.published import typical_grants
from evaluation.jobs.job import Step
from evaluation.simulator.applications.log import scaling_config
from evaluation.simulator.applications.presets import application
from evaluation.simulator.applications.response import limits_of
from logs_schema import Archive
from logs_schema.progress import Progress
from offline_rl.algorithms.td3 import td3
from offline_rl.autoscaling.students import Lessons, StudentConfig, student_policy, train_students
from offline_rl.autoscaling.teaching import TeacherConfig, teach, teacher_policy, train_teacher
from offline_rl.networks import example_of
from twin.arrays import load_arrays, save_arrays
from twin.autoscaling.answers import twin_response
from twin.autoscaling.persistence import load_application_twin
from twin.autoscaling.problem import autoscaling_problem
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import read_scaling_log
from twin.autoscaling.workload import made_rates
from twin.contracts import Array, Environment, Policy, PyTree
from twin.environment import environment

PARAMS = "params.npz"
TRAINING_DAYS, EPISODE = 30, 240
KINDS = ("teacher", "students", "students_discrete")
STUDENTS = {"students": StudentConfig(), "students_discrete": StudentConfig(discrete=True)}


def training_environment(preset: str, folder: Path, archive: Path) -> Environment:
    """The twin as a system to train in."""
    twin, app = load_application_twin(folder), application(preset)
    config, limits = scaling_config(app, twin.interval_s), limits_of(app)
    begin = typical_grants(read_scaling_log(Archive(archive), deployments=twin.deployments))
    rates = made_rates(twin.load, TRAINING_DAYS, 2)
    response = twin_response(twin.laws, config, limits, rates, EPISODE, begin)
    return environment(autoscaling_problem(config, limits, cost_under_slo()), response)


def learning_steps(
    preset: str, archive: str, num_seeds: int, updates: int, names: tuple[str, ...]
) -> list[Step]:
    """Steps that train what is asked for: the teachers, and students after them."""
    wanted = [kind for kind in KINDS if not names or kind in names]
    if not wanted:
        return []
    settings = {"preset": preset, "num_seeds": num_seeds, "updates": updates}
    config = TeacherConfig(updates=updates)

    def build_teachers(out: Path, inputs: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
        system = training_environment(preset, inputs["twin"], inputs["archive"] / archive)
        actors, rewards = [], []
        with progress.stage("teacher", unit="seeds") as stage:
            for seed in range(num_seeds):
                actor, info = train_teacher(jax.random.key(seed), system, config)
                actors.append(actor)
                rewards.append([float(one) for one in info.reward])
                stage(seed + 1.0, float(num_seeds))
        save_arrays(out / PARAMS, stacked(actors))
        return {"reward": rewards}

    def build_students(kind: str) -> Callable[[Path, Mapping[str, Path], Progress], Mapping[str, Any]]:
        def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
            system = training_environment(preset, inputs["twin"], inputs["archive"] / archive)
            scaling = scaling_config(application(preset))
            actors = load_arrays(inputs["teacher"] / PARAMS, teachers_like(system, config, num_seeds))
            found = []
            with progress.stage(kind, unit="seeds") as stage:
                for seed in range(num_seeds):
                    teacher = teacher_policy(
                        system, jax.tree.map(lambda leaf, seed=seed: leaf[seed], actors), config
                    )
                    found.append(teach(jax.random.key(seed), system, scaling, teacher, STUDENTS[kind]).params)
                    stage(seed + 1.0, float(num_seeds))
            save_arrays(out / PARAMS, stacked(found))
            return {}

        return build

    steps = [
        Step("teacher", "autoscaling-policy", build_teachers, inputs=("archive", "twin"), config=settings)
    ]
    steps += [
        Step(
            kind,
            "autoscaling-policy",
            build_students(kind),
            inputs=("archive", "twin", "teacher"),
            config=settings,
        )
        for kind in wanted
        if kind in STUDENTS
    ]
    return steps


def learned_autoscaler(
    preset: str, kind: str, products: Mapping[str, Path], archive: str, num_seeds: int, updates: int
) -> Autoscaler:
    """A trained kind as an autoscaler whose first streams are the first seed's, and so on."""
    system = training_environment(preset, products["twin"], products["archive"] / archive)
    config, limits = scaling_config(application(preset)), limits_of(application(preset))
    teacher = TeacherConfig(updates=updates)
    if kind == "teacher":
        params = load_arrays(products[kind] / PARAMS, teachers_like(system, teacher, num_seeds))
        return learned(config, limits, by_seed(params, lambda one: teacher_policy(system, one, teacher)))
    params = load_arrays(products[kind] / PARAMS, students_like(system, STUDENTS[kind], num_seeds))
    return learned(config, limits, by_seed(params, lambda one: student_policy(one, STUDENTS[kind])))


def by_seed(params: PyTree, policy_of: Callable[[PyTree], Policy]) -> Policy:
    """Policies of several seeds as one, for a single stream axis: each decides for an equal part of it."""
    num_seeds = jax.tree.leaves(params)[0].shape[0]

    def decide(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        def split(leaf: Array) -> Array:
            return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], num_seeds, -1), -2, 0)

        seen, allowed = jax.tree.map(split, (observation, legal))
        action = jax.vmap(lambda one, *what: policy_of(one)(key, *what))(params, seen, allowed)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], -1), action)

    return decide


def stacked(trees: list[PyTree]) -> PyTree:
    """Trees as one, leaves [trees, ...]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def teachers_like(system: Environment, config: TeacherConfig, num_seeds: int) -> PyTree:
    """Shapes of the parameters of several teachers."""
    algorithm = td3(example_of(system), config.td3)
    actor = jax.eval_shape(algorithm.init, jax.random.key(0)).params.actor
    return jax.tree.map(lambda leaf: jnp.zeros((num_seeds, *leaf.shape), leaf.dtype), actor)


def students_like(system: Environment, config: StudentConfig, num_seeds: int) -> PyTree:
    """Shapes of the parameters of several seeds' students."""
    local = example_of(system).observation.local
    number = local.shape[1]
    lessons = Lessons(jnp.zeros((local.shape[0], number, 1)), jnp.zeros((3, number, 1)))
    params = jax.eval_shape(lambda key: train_students(key, lessons, config), jax.random.key(0)).params
    return jax.tree.map(lambda leaf: jnp.zeros((num_seeds, *leaf.shape), leaf.dtype), params)
