"""What is learned for paper DRPC's comparison: teachers, their students, and a clone of the log, one for each seed.

Everything is trained in the twin, or from the log; each kind is a product of its own. One is trained in the truth, for
judges alone: it shows what `teacher_lookahead` loses by learning in the twin.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.jobs.job import Step
from evaluation.simulator.applications.load import made_rates
from evaluation.simulator.applications.log import scaling_config
from evaluation.simulator.applications.presets import Application, application
from evaluation.simulator.applications.response import application_response, limits_of
from logs_schema import Archive
from logs_schema.progress import Progress
from offline_rl.algorithms.td3 import td3
from offline_rl.autoscaling.config import SCALE_CODE, ScaleConfig
from offline_rl.autoscaling.from_logs import evened, learn_from_log, logged_pairs
from offline_rl.autoscaling.policy_gradients import PolicyGradientConfig, train_by_gradients
from offline_rl.autoscaling.students import Lessons, StudentConfig, lessons_of, student_policy, train_students
from offline_rl.autoscaling.teaching import TeacherConfig, teach, teacher_policy, train_teacher
from offline_rl.networks import example_of
from offline_rl.recipes.scaling_task import ScalingTask, logged_cost
from offline_rl.recipes.scaling_training import EPISODE, TEACHERS, guarded, systems_to_learn_in
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, learned
from offline_rl.rules.autoscaling.imitation import students_of, teacher_of
from offline_rl.rules.autoscaling.published import autoscalers, typical_grants
from twin.arrays import load_arrays, save_arrays
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.logged_intervals import logged_intervals
from twin.autoscaling.observing import observe
from twin.autoscaling.persistence import ApplicationTwin, load_application_twin
from twin.autoscaling.problem import autoscaling_problem, legal_steps
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import ScalingLog, read_scaling_log
from twin.contracts import Array, Environment, Policy, PyTree
from twin.environment import environment

PARAMS = "params.npz"
LOAD_SEED = 2
"""Of the days that are made to learn in."""
STUDENTS = {
    "students": StudentConfig(),
    "students_discrete": StudentConfig(discrete=True),
    "students_lookahead": StudentConfig(),
    "clone": StudentConfig(discrete=True),
}
"""Those of lookahead imitate the planner in place of the teacher. The clone learns from the log what the others learn
from the teacher, and draws from its choices as the log does."""
IN_TRUTH = "teacher_lookahead_in_truth"
"""As `teacher_lookahead`, of the same planner, but trained in the truth."""
BY_GRADIENTS, ON_PLANNER, FROM_LOG = "ppo", "ppo_lookahead", "td3_bc"
"""As `teacher`: by PPO in the twin, from nothing and on from `teacher_lookahead`; by TD3+BC from the log alone."""
KINDS = (*TEACHERS, BY_GRADIENTS, ON_PLANNER, FROM_LOG, *STUDENTS, IN_TRUTH)
WHOLE = (*TEACHERS, BY_GRADIENTS, ON_PLANNER, FROM_LOG, IN_TRUTH)
"""One network for all deployments."""
PLANNED = ("teacher_lookahead", "students_lookahead", IN_TRUTH)
AFTER = {"students": "teacher", "students_discrete": "teacher", ON_PLANNER: "teacher_lookahead"}
"""Kind -> the network that it learns from, or starts at."""


TRUTH_DAYS = 45
"""Days of the truth to learn in, from the first of the log on; their loads are those of no trace."""


class School(NamedTuple):
    """Where learning takes place."""

    system: Environment  # the twin
    drifting: Environment  # the twin in worlds whose mix of requests moves
    truth: Callable[[], Environment]  # the application itself, for `IN_TRUTH` alone
    scaling: AutoscalingConfig
    limits: GrantLimits
    log: ScalingLog
    teacher: TeacherConfig
    num_seeds: int
    twin: ApplicationTwin


def task_of(app: Application, log: ScalingLog) -> ScalingTask:
    """What is decided about in an application, as in `train`: a violation of the objective costs a multiple of what the
    log's grants do; no replica gets less memory than there, since a log in which none was full of calls does not tell
    what that takes; and optional services stay on, since no reward says what users miss without them."""
    price = ScaleConfig().violation_weight * logged_cost(log)
    scaling = replace(scaling_config(app, log.interval_s), violation_cores=price)
    least = jnp.asarray(np.nanmin(log.memory_granted, axis=0), jnp.float32)
    limits = limits_of(app)
    limits = limits._replace(
        min_memory_gib=jnp.maximum(limits.min_memory_gib, least),
        min_replicas=jnp.maximum(limits.min_replicas, 1.0),
    )
    return ScalingTask(scaling, limits)


def school_of(
    preset: str, products: Mapping[str, Path], archive: str, num_seeds: int, updates: int
) -> School:
    """The twin as a system to train in, and its log."""
    twin, app = load_application_twin(products["twin"]), application(preset)
    log = read_scaling_log(Archive(products["archive"] / archive), deployments=twin.deployments)
    setting = scaling, limits = task_of(app, log)
    system, moving = systems_to_learn_in(twin, log, setting, cost_under_slo(), LOAD_SEED)

    def truth() -> Environment:
        rates = made_rates(app, TRUTH_DAYS, scaling.interval_s, LOAD_SEED)
        answers = application_response(
            app, scaling, rates, EPISODE, grants=typical_grants(log), limits=limits
        )
        return environment(autoscaling_problem(scaling, limits, cost_under_slo()), answers)

    return School(
        system, moving, truth, scaling, limits, log, TeacherConfig(updates=updates), num_seeds, twin
    )


def learning_step(kind: str, preset: str, archive: str, num_seeds: int, updates: int) -> Step:
    """The step that trains a kind, once for every seed."""

    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
        school = school_of(preset, inputs, archive, num_seeds, updates)
        teachers = load_params(inputs, AFTER[kind], school) if kind in AFTER else None
        planner = planner_of(school) if kind in PLANNED else None
        found = []
        with progress.stage(kind, unit="seeds") as stage:
            for seed in range(num_seeds):
                teacher = jax.tree.map(lambda leaf, seed=seed: leaf[seed], teachers)
                found.append(learn(jax.random.key(seed), kind, school, teacher, planner))
                stage(seed + 1.0, float(num_seeds))
        save_arrays(out / PARAMS, jax.tree.map(lambda *leaves: jnp.stack(leaves), *found))
        return {}

    before = ("archive", "twin", AFTER[kind]) if kind in AFTER else ("archive", "twin")
    settings = {"preset": preset, "num_seeds": num_seeds, "updates": updates}
    return Step(kind, "autoscaling-policy", build, inputs=before, config=settings, code_version=SCALE_CODE)


def planner_of(school: School) -> Autoscaler:
    """Lookahead, calibrated in the twin."""
    named = autoscalers(school.scaling, school.limits, school.twin, school.log, 1, ("lookahead",))
    return named["lookahead"]().autoscaler


def learn(
    key: Array, kind: str, school: School, teacher: PyTree = None, planner: Autoscaler | None = None
) -> PyTree:
    """Parameters of one policy of a kind; those that come after another (`AFTER`) get its."""
    if kind == "teacher":
        return train_teacher(key, school.system, school.teacher)[0]
    if kind in (BY_GRADIENTS, ON_PLANNER):
        config = PolicyGradientConfig(updates=school.teacher.updates)
        return train_by_gradients(key, school.drifting, config, teacher)
    if kind == FROM_LOG:
        pairs = logged_pairs(school.scaling, school.limits, school.log, cost_under_slo())
        return learn_from_log(key, evened(pairs, school.scaling.dead_zone))
    if kind == "clone":
        intervals = logged_intervals(school.scaling, school.log)
        seen = observe(school.scaling, school.limits, intervals.state)
        lessons = lessons_of(seen, intervals.action, legal_steps(school.scaling, intervals.state.grants))
        return train_students(key, lessons, STUDENTS[kind]).params
    if planner is not None:
        if kind in WHOLE:
            system = school.truth() if kind == IN_TRUTH else school.drifting
            return teacher_of(key, system, school.scaling, school.limits, planner)
        taught = students_of(key, school.system, school.scaling, school.limits, planner, STUDENTS[kind])
        return taught.params
    policy = teacher_policy(teacher, school.teacher)
    return teach(key, school.system, school.scaling, policy, STUDENTS[kind]).params


def learned_autoscaler(
    kind: str, preset: str, products: Mapping[str, Path], archive: str, num_seeds: int, updates: int
) -> Autoscaler:
    """A trained kind as an autoscaler whose first streams are the first seed's, and so on."""
    school = school_of(preset, products, archive, num_seeds, updates)

    def policy_of(params: PyTree) -> Policy:
        if kind in WHOLE:
            return teacher_policy(params, school.teacher)
        return student_policy(params, STUDENTS[kind], sampled=kind == "clone")

    policy = by_seed(load_params(products, kind, school), policy_of)
    setting = ScalingTask(school.scaling, school.limits)
    return guarded(school.twin, setting, learned(*setting, policy))


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


def load_params(products: Mapping[str, Path], kind: str, school: School) -> PyTree:
    """The trained parameters of all seeds of a kind, leaves [seeds, ...]."""
    example, key = example_of(school.system), jax.random.key(0)
    if kind in WHOLE:
        like = jax.eval_shape(td3(example, school.teacher.td3).init, key).params.actor
    else:
        features, number = example.observation.local.shape
        lessons = Lessons(jnp.zeros((features, number, 1)), jnp.zeros((3, number, 1)))
        like = jax.eval_shape(lambda key: train_students(key, lessons, STUDENTS[kind]), key).params
    like = jax.tree.map(lambda leaf: np.zeros((school.num_seeds, *leaf.shape), leaf.dtype), like)
    return load_arrays(products[kind] / PARAMS, like)
