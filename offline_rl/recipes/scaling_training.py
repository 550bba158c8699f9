"""Policies for an application: rules calibrated in its twin, a teacher, its students; the best of them in the twin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Progress, Stage, unseen
from offline_rl.autoscaling.config import TEACHER_REWARDS, ScaleConfig
from offline_rl.autoscaling.ladder import ScalingChoice, choose_autoscaler
from offline_rl.autoscaling.students import StudentConfig, student_policy
from offline_rl.autoscaling.teaching import TeacherConfig, teach, teacher_policy, train_teacher
from offline_rl.bundle import read_arrays
from offline_rl.recipes.scaling_task import KEPT_SHARE, ScalingTask, setting_of
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, Played, follow, free_config, learned
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig
from offline_rl.rules.autoscaling.imitation import students_of, teacher_of
from offline_rl.rules.autoscaling.logged import gains, least, logged_load
from offline_rl.rules.autoscaling.published import autoscalers, typical_grants
from offline_rl.rules.autoscaling.rate_target import static
from offline_rl.rules.autoscaling.rescue import core_s_per_request, rescued
from offline_rl.runner.scaling import TEACHER, DeploymentSetting, ScalingSetting, write_setting
from twin.arrays import kept_arrays, save_arrays
from twin.autoscaling.answers import twin_response
from twin.autoscaling.laws import drifting
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.problem import autoscaling_problem
from twin.autoscaling.rewards import Reward, cost_under_slo
from twin.autoscaling.scaling_log import ScalingLog
from twin.autoscaling.types import Grants, kept_objective, quantile_s
from twin.autoscaling.workload import LEVEL_SPREAD, made_rates
from twin.contracts import Array, Environment, Policy, PyTree
from twin.environment import environment
from twin.nested import nested

POD_RULES = ("hpa_calibrated", "hpa_sized")
"""The rules that a bundle can hold; one is handed over where nothing learned surely beats it."""
RULES = ("hpa", *POD_RULES, "rate_target", "lookahead")
TAUGHT = {"students": StudentConfig(), "students_discrete": StudentConfig(discrete=True)}
TEACHERS = ("teacher", "teacher_lookahead")
"""Networks for all deployments: of TD3 from nothing, and one that imitates the planner."""
PLANNED = "students_lookahead"
"""Students that imitate the planner in place of the teacher."""
STUDENTS = TAUGHT | {PLANNED: StudentConfig()}
TRAINING_SEED, TRIAL_SEED, DAYS, EPISODE = 11, 12, 30, 240

Params = dict[str, PyTree]
Found = TypeVar("Found")


class ScalingTrial(NamedTuple):
    """What a trial in fresh days of the twin hands over.

    Attributes:
        tried: Name -> mean figures of the autoscaler in the trial.
        rule: The better one of `POD_RULES`, which is what a learned one is held against.
        taken: What is handed over, and why.
        off_by: What the twin's value of the logged grants is off by [cores].
        over_log: Name -> mean gain over the log's grants, and its least, of that rule and the best that was learned.
    """

    tried: dict[str, dict[str, float]]
    rule: str
    taken: ScalingChoice
    off_by: float
    over_log: dict[str, dict[str, float]]

    def facts(self) -> dict[str, Any]:
        """It as JSON values."""
        taken = self.taken
        return {
            "tried": self.tried, "rule": self.rule, "recommended": taken.name, "best_learned": taken.best,
            "gain": taken.gain, "gain_low": taken.low if np.isfinite(taken.low) else None,
            "gain_least": taken.least, "off_by": self.off_by, "held_back": taken.why,
            "over_log": self.over_log,
        }  # fmt: skip


def scaling_setting(
    twin: ApplicationTwin, task: ScalingTask, fallback: PodAutoscalerConfig
) -> ScalingSetting:
    """What a bundle says of an application; `fallback` is a calibrated pod autoscaler."""
    scaling, limits = task
    leaves = {name: np.asarray(leaf, float).tolist() for name, leaf in limits._asdict().items()}
    core_s = core_s_per_request(twin.laws)
    deployments = tuple(
        DeploymentSetting(
            name=name, min_cpu_cores=leaves["min_cpu_cores"][place], max_cpu_cores=leaves["max_cpu_cores"][place],
            min_memory_gib=leaves["min_memory_gib"][place], max_memory_gib=leaves["max_memory_gib"][place],
            min_replicas=int(leaves["min_replicas"][place]), max_replicas=int(leaves["max_replicas"][place]),
            most_rate_per_s=float(twin.coverage.most_rate_per_s[place]), core_s_per_request=float(core_s[place]),
        )
        for place, name in enumerate(twin.deployments)
    )  # fmt: skip
    setting = ScalingSetting(
        TEACHER, deployments, scaling.interval_s, scaling.delay_intervals, scaling.cpu_step_cores,
        scaling.memory_step_gib, scaling.dead_zone, scaling.reach, scaling.slo_s, scaling.slo_share,
        violation_cores=scaling.violation_cores,
    )  # fmt: skip
    return with_rule(setting, fallback)


def with_rule(setting: ScalingSetting, rule: PodAutoscalerConfig) -> ScalingSetting:
    """The setting with another pod autoscaler to fall back to, its replicas' size within the bounds."""
    size, target = float(rule.cpu_cores), float(rule.target)
    deployments = tuple(
        replace(
            one,
            target=target,
            rule_cpu_cores=size and float(np.clip(size, one.min_cpu_cores, one.max_cpu_cores)),
        )
        for one in setting.deployments
    )
    return replace(
        setting,
        deployments=deployments,
        down_window_s=float(rule.down_window_s),
        tolerance=float(rule.tolerance),
    )


def build_policy(
    out: Path,
    twin: ApplicationTwin,
    log: ScalingLog,
    config: ScaleConfig,
    seeds: Sequence[int],
    progress: Progress,
    *,
    off_by: float = 0.0,
    is_trusted: bool = True,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Calibrates and trains what there is, tries all of it in the twin, and takes what is handed over (`try_in_twin`);
    facts of the product. What is done is saved in the folder `keep`: a second call goes on from there."""
    setting = setting_of(config, twin, log)
    candidates: dict[str, Autoscaler] = {}
    chosen: dict[str, Mapping[str, float]] = {}
    with progress.stage("calibrate", unit="rules") as stage:
        rules = autoscalers(*setting, twin, log, config.trial_episodes, RULES, keep)
        for done, (name, make) in enumerate(rules.items(), 1):
            made = make()
            candidates[name], chosen[name] = made.autoscaler, made.chosen
            stage(float(done), float(len(rules)))
    with progress.stage("train", unit="networks") as stage:
        for done, seed in enumerate(seeds if config.updates else ()):
            shown = partial(_show, stage, done, len(seeds))
            params = _trained(twin, log, setting, config, candidates["lookahead"], seed, shown, keep)
            save_arrays(out / policies_file(seed), params)
            candidates |= {
                f"{name}-{seed}": trained_autoscaler(twin, setting, name, one) for name, one in params.items()
            }
    with progress.stage("try in the twin", unit="autoscalers") as stage:
        trial = try_in_twin(
            candidates,
            twin,
            log,
            setting,
            config,
            off_by=off_by,
            is_trusted=is_trusted,
            stage=stage,
            keep=keep,
        )
    write_setting(out, scaling_setting(twin, setting, PodAutoscalerConfig(**chosen[trial.rule])))
    return {
        "objective_s": setting.scaling.slo_s,
        "objective_is_given": config.slo_s is not None,
        "reachable_s": reachable_s(twin, log, setting, config),
        "chosen": chosen,
        "seeds": list(seeds),
        "teacher_reward": config.teacher_reward,
        **trial.facts(),
    }


def try_in_twin(
    candidates: Mapping[str, Autoscaler],
    twin: ApplicationTwin,
    log: ScalingLog,
    setting: ScalingTask,
    config: ScaleConfig,
    *,
    off_by: float,
    is_trusted: bool,
    stage: Stage = unseen,
    keep: Path | None = None,
) -> ScalingTrial:
    """Tries autoscalers in fresh days of the twin and chooses the one that is handed over.

    Args:
        candidates: Name -> autoscaler; those of `POD_RULES` among them. All that are not in `RULES` were learned.
        twin, log: Of the application; episodes begin with the usual grants of the log.
        setting: What is decided about.
        config: Number and length of the episodes.
        off_by, is_trusted: As of `choose_autoscaler`.
        stage: Where to show how far it is.
        keep: Folder that saves what was tried.
    """
    rates, starts = _trial_days(twin, config)
    tried: dict[str, dict[str, np.ndarray]] = {}
    for done, (name, one) in enumerate(candidates.items()):
        stage(float(done), float(len(candidates)), name)
        attempt = partial(_tried, one, twin, log, setting, config, rates, starts)
        tried[name] = kept_arrays(keep and keep / f"tried-{name}.npz", attempt)
    means = {
        name: {word: float(np.mean(value)) for word, value in one.items()} for name, one in tried.items()
    }
    rule = max(POD_RULES, key=lambda name: means[name]["reward"])
    taken = choose_autoscaler(
        {name: one["reward"] for name, one in tried.items()},
        rule,
        [name for name in candidates if name not in RULES],
        num_members=len(twin.laws.work_s),
        off_by=off_by,
        is_trusted=is_trusted,
    )
    told = {rule, taken.best} - {""}
    over_log = _over_log({name: candidates[name] for name in sorted(told)}, twin, log, setting)
    return ScalingTrial(means, rule, taken, off_by, over_log)


def _over_log(
    autoscalers: Mapping[str, Autoscaler], twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask
) -> dict[str, dict[str, float]]:
    """What autoscalers gain over the log's own grants under the load of the log [cores]."""
    load = logged_load(log, *setting, typical_grants(log), len(twin.laws.work_s))
    return {
        name: {"gain": float(np.mean(gained)), "least": least(gained)}
        for name, gained in gains(autoscalers, load, twin, *setting).items()
    }


def reachable_s(twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask, config: ScaleConfig) -> float:
    """The shortest objective that is kept in `KEPT_SHARE` of the intervals of the trial, about: by all that the limits
    allow, once it has started."""
    limits, share = setting.limits, setting.scaling.slo_share
    most = static(Grants(limits.max_cpu_cores, limits.max_memory_gib, limits.max_replicas))

    def tails_s(played: Played) -> Array:
        return jax.vmap(lambda latency: quantile_s(latency, share))(played.gateway.latency)

    found = _in_trial(most, twin, log, setting, config, *_trial_days(twin, config), tails_s)
    return float(np.quantile(np.asarray(found)[config.trial_steps // 4 :], KEPT_SHARE))


def _trial_days(twin: ApplicationTwin, config: ScaleConfig) -> tuple[np.ndarray, np.ndarray]:
    """Rates of fresh days, and where the episodes of a trial begin: both halves of them see all of the days."""
    rates = made_rates(twin.load, DAYS, TRIAL_SEED)
    starts = np.linspace(0, len(rates) - config.trial_steps - 2, 2 * config.trial_episodes).astype(int)
    return rates, np.concatenate([starts[::2], starts[1::2]])


def guarded(twin: ApplicationTwin, setting: ScalingTask, autoscaler: Autoscaler) -> Autoscaler:
    """An autoscaler with the rescue that it has in production, see `offline_rl.rules.autoscaling.rescue`."""
    return rescued(*setting, autoscaler, core_s_per_request(twin.laws))


def trained_autoscaler(twin: ApplicationTwin, setting: ScalingTask, name: str, params: PyTree) -> Autoscaler:
    """A trained policy by its name, guarded as in production."""
    return guarded(twin, setting, learned(*setting, policy_of(name, params)))


def systems_to_learn_in(
    twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask, reward: Reward, load_seed: int
) -> tuple[Environment, Environment]:
    """The twin under made days of its load, and the same in worlds whose mix of requests moves (`drifting`).

    Args:
        twin, log: Of the application; episodes begin with the usual grants of the log.
        setting: What is decided about.
        reward: What a decision earns.
        load_seed: Of the made days.
    """
    rates, begin = made_rates(twin.load, DAYS, load_seed, LEVEL_SPREAD), typical_grants(log)
    problem = autoscaling_problem(*setting, reward)
    system, moving = (
        environment(problem, twin_response(laws, *setting, rates, EPISODE, begin))
        for laws in (twin.laws, drifting(twin.laws))
    )
    return system, moving


def _trained(
    twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask, config: ScaleConfig, planner: Autoscaler, seed: int,
    shown: Callable[[int, str], None], keep: Path | None,
) -> Params:  # fmt: skip
    """Teachers and students, of TD3 and of the planner; each is kept, and the teacher of TD3 on the way."""
    scaling, limits = setting
    reward = TEACHER_REWARDS[config.teacher_reward]()
    system, moving = systems_to_learn_in(twin, log, setting, reward, TRAINING_SEED)
    teacher_config, key = TeacherConfig(updates=config.updates), jax.random.key(seed)
    on_the_way = keep and keep / f"teacher-{seed}-on-the-way.npz"

    def taught_by(student: StudentConfig) -> PyTree:
        return teach(key, system, scaling, teacher_policy(params["teacher"], teacher_config), student).params

    makers: dict[str, Callable[[], PyTree]] = {
        "teacher": lambda: train_teacher(key, system, teacher_config, on_the_way)[0],
        **{name: partial(taught_by, student) for name, student in TAUGHT.items()},
        "teacher_lookahead": lambda: teacher_of(key, moving, scaling, limits, planner),
        PLANNED: lambda: students_of(key, system, scaling, limits, planner, STUDENTS[PLANNED]).params,
    }
    params: Params = {}
    for done, (name, make) in enumerate(makers.items()):
        shown(done, name)
        params[name] = kept_arrays(keep and keep / f"{name}-{seed}.npz", make)
        if on_the_way is not None:
            on_the_way.unlink(missing_ok=True)
    return params


def _show(stage: Stage, begun: int, num_seeds: int, done: int, name: str) -> None:
    """Shows how many networks are trained, and which one is next."""
    number = len(TAUGHT) + len(TEACHERS) + 1
    stage(float(begun * number + done), float(num_seeds * number), name)


def policies_file(seed: int) -> str:
    """File of a policy's folder with the parameters that a seed trained."""
    return f"policies-{seed}.npz"


def read_policies(folder: Path, seed: int) -> Params:
    """Name -> parameters that a seed trained; ProductError where there are none."""
    return nested(read_arrays(folder / policies_file(seed)))


def policy_of(name: str, params: PyTree) -> Policy:
    """A trained policy, by the name that training gave it."""
    return teacher_policy(params) if name in TEACHERS else student_policy(params, STUDENTS[name])


def _tried(
    autoscaler: Autoscaler, twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask, config: ScaleConfig,
    rates: np.ndarray, starts: np.ndarray,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Figures [episodes] of an autoscaler in the twin."""
    scaling = setting.scaling

    def figures(played: Played) -> dict[str, Array]:
        cores = jnp.sum(played.grants.replicas * played.grants.cpu_cores, axis=1)
        worth = jnp.sum(played.reward, axis=1)
        kept = jax.vmap(
            lambda gateway: kept_objective(
                gateway.latency, gateway.num_failures, scaling.slo_share, scaling.slo_s
            )
        )(played.gateway)
        parts = {
            "reward": worth,
            "cpu_cores": cores,
            "mean_response_s": played.gateway.response_s,
            "objective_kept": kept.astype(jnp.float32),
        }
        return {name: jnp.mean(leaf, axis=0) for name, leaf in parts.items()}

    found = _in_trial(autoscaler, twin, log, setting, config, rates, starts, figures)
    return {name: np.asarray(value) for name, value in found.items()}


def _in_trial(
    autoscaler: Autoscaler, twin: ApplicationTwin, log: ScalingLog, setting: ScalingTask, config: ScaleConfig,
    rates: np.ndarray, starts: np.ndarray, measure: Callable[[Played], Found],
) -> Found:  # fmt: skip
    """What is measured of an autoscaler in the episodes of a trial."""
    scaling, limits = setting
    response = twin_response(
        twin.laws, free_config(scaling), limits, rates, config.trial_steps, typical_grants(log), starts=starts
    )

    @jax.jit
    def play(key: Array) -> Found:
        steps = config.trial_steps
        return measure(
            follow(key, response, scaling, limits, autoscaler, cost_under_slo(), steps, starts.shape)
        )

    found: Found = play(jax.random.key(5))
    return found
