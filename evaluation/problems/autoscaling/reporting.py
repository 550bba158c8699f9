"""The comparison of a training's policies with the calibrated rules, and its report."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import PolicyFacts
from evaluation.comparison.products import (
    refuse_other_twin,
    remarks_on_training,
    train_days_in,
)
from evaluation.comparison.report import Report, write_comparison
from evaluation.comparison.shifts import ShiftPlan, plan_shifts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.named import refuse_taken
from evaluation.judges.user_judges import UserJudge, days_of_shifts, judged_by_users
from evaluation.judges.user_policies import UserPolicy, words_of
from evaluation.problems.autoscaling.comparing import (
    JUDGES,
    LOGGED,
    ComparedAutoscaler,
    compare_autoscalers,
)
from evaluation.problems.autoscaling.judged_days import requests_by_day
from evaluation.problems.autoscaling.user_autoscalers import user_autoscalers
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.reporting import capabilities_of, quarantine_of
from logs_schema import Archive
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.autoscaling.config import COST, SCALE_CODE, ScaleConfig
from offline_rl.recipes.scaling_task import ScalingTask, setting_of
from offline_rl.recipes.scaling_training import (
    POD_RULES,
    RULES,
    guarded,
    policy_of,
    read_policies,
    trained_autoscaler,
)
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from offline_rl.rules.autoscaling.lookahead import LookaheadConfig, lookahead
from offline_rl.rules.autoscaling.published import autoscalers
from twin.autoscaling.persistence import ApplicationTwin, load_application_twin, load_log
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import ScalingLog, read_scaling_log

COMPARISON_CODE = 100 * SCALE_CODE + 1
"""Raised when changes of the code change comparisons, and with the code of what is learned."""
WORDS = {
    "hpa": "the rules of Kubernetes' pod autoscaler at their defaults",
    "hpa_calibrated": "the same, its settings searched in the training twin",
    "hpa_sized": "the same, the size of a replica searched too, one for all deployments",
    "rate_target": "replicas by request rate",
    "lookahead": "the cheapest grants with which the training twin keeps the objective, a few intervals ahead",
    "teacher": "TD3 over all deployments, in the training twin",
    "teacher_lookahead": "a network over all deployments that imitates lookahead in twins whose mix of requests moves",
    "students": "a small network a deployment that imitates the teacher",
    "students_discrete": "the same, choosing steps",
    "students_lookahead": "a small network a deployment that imitates lookahead",
}
LIMITS = (
    "The twin of a shifted day is learned from that day's log: where grants go that the day has not had, its answer is "
    "the law's, not the log's.",
    "Intervals are over episodes of one day, or of the days judged together; they do not tell how days differ.",
)


def build_comparison(
    out: Path,
    inputs: Mapping[str, Path],
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    progress: Progress,
    judges: Mapping[str, UserJudge] | None = None,
) -> dict[str, Any]:
    """Writes `comparison.json` and the report into `out`; `policies` and `judges` are the user's."""
    archive, policy = Archive(inputs["archive"]), inputs.get("policy")
    twin = load_application_twin(inputs["twin"])
    refuse_other_twin(policy, inputs["twin"])
    log, scale = load_log(inputs["twin"]), config.scale or ScaleConfig()
    plan = plan_shifts(requests_by_day(archive), train_days_in(inputs["twin"]), config.shifts)
    hashes = {name: content_hash_of(path) for name, path in inputs.items()}
    settings = {"shifts": config.shifts, "scale": scale, "code": COMPARISON_CODE}
    keep = Unfinished.beside(out, "comparison", hashes, settings, config.judge.seed, progress=progress)
    comparison = judge(
        policies, twin, archive, plan, progress, scale=scale, intervals=config.intervals, seed=config.judge.seed,
        judges=judges, policy=policy, log=log, keep=keep,
    )  # fmt: skip
    limits, warnings = remarks_on_training(policy)
    report = Report(
        title=title,
        comparison=comparison,
        fit=(),
        capabilities=capabilities_of(archive),
        quarantine=quarantine_of(archive),
        configuration={"objective_s": setting_of(scale, twin, log).scaling.slo_s},
        hashes=hashes,
        limits=(*limits, *LIMITS),
        warnings=warnings,
    )
    facts = write_comparison(report, out)
    keep.remove()
    return facts


def judge(
    policies: Mapping[str, UserPolicy],
    twin: ApplicationTwin,
    archive: Archive,
    plan: ShiftPlan,
    progress: Progress,
    *,
    scale: ScaleConfig | None = None,
    intervals: IntervalConfig | None = None,
    seed: int = 0,
    judges: Mapping[str, UserJudge] | None = None,
    policy: Path | None = None,
    log: ScalingLog | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """Autoscalers on one day after every shift, by its twin, the truth and the user's judges.

    `policy` is a training's product, `log` that of the training days, which is read where it is None; `keep` holds what
    is judged already.
    """
    refuse_taken(judges or {}, list(JUDGES), "judge")
    scale, intervals = scale or ScaleConfig(), intervals or IntervalConfig()
    log = read_scaling_log(archive, plan.train_days, twin.deployments) if log is None else log
    task = setting_of(scale, twin, log)
    contenders = contenders_of(policy, task, twin, log)
    taken = [LOGGED, *(one.facts.name for one in contenders)]
    own = user_autoscalers(policies, taken, twin.deployments, policy_of)
    for name, one in own.ready.items():
        facts = PolicyFacts(name, "baseline", words_of(policies[name]))
        contenders.append(ComparedAutoscaler(facts, [one], is_users=True))
    comparison = compare_autoscalers(
        archive, plan.train_days, plan.shifts, task, twin.deployments, contenders,
        cost_under_slo(), progress, seed=seed, config=intervals, keep=keep,
    )  # fmt: skip

    def logged(days: Sequence[dt.date]) -> ScalingLog:
        return read_scaling_log(archive, days, twin.deployments)

    return judged_by_users(
        own.left_out_of(comparison),
        judges or {},
        {one.facts.name: one.autoscalers for one in contenders},
        days_of_shifts(archive, twin, comparison, seed, logged),
        intervals,
        progress,
    )


def contenders_of(
    policy: Path | None, task: ScalingTask, twin: ApplicationTwin, log: ScalingLog
) -> list[ComparedAutoscaler]:
    """Rules, with the settings that a training chose, and what it trained: all seeds of it."""
    scaling, limits = task
    facts: Mapping[str, Any] = {} if policy is None else read_manifest(policy, "policy").extra
    rules = {"hpa": horizontal_pod(scaling, limits)}
    rules["rate_target"] = autoscalers(*task, twin, log, 1, ("rate_target",))["rate_target"]().autoscaler
    chosen = facts.get("chosen", {})
    task = ScalingTask(scaling, limits)
    for name in POD_RULES:
        if name in chosen:
            rules[name] = guarded(twin, task, horizontal_pod(*task, PodAutoscalerConfig(**chosen[name])))
    known = {
        name: value for name, value in chosen.get("lookahead", {}).items() if name in LookaheadConfig._fields
    }
    planned = LookaheadConfig()._asdict() | known  # older trainings name more
    whole = {**planned, "keep": int(planned["keep"]), "horizon": int(planned["horizon"])}
    planner = lookahead(scaling, limits, twin.laws, twin.load, LookaheadConfig(**whole))
    rules["lookahead"] = guarded(twin, task, planner)
    found = [
        ComparedAutoscaler(PolicyFacts(name, "baseline", WORDS[name]), [rules[name]])
        for name in RULES
        if name in rules
    ]
    seeds = facts.get("seeds", []) if facts.get("tried", {}).keys() - set(RULES) else []
    trained = [read_policies(policy, seed) for seed in seeds] if policy is not None else []
    reward = facts.get("teacher_reward", COST)
    words = WORDS if reward == COST else WORDS | {"teacher": f"{WORDS['teacher']}, for {reward}"}
    for name in trained[0] if trained else ():
        each = [trained_autoscaler(twin, task, name, params[name]) for params in trained]
        found.append(ComparedAutoscaler(PolicyFacts(name, "trained", words[name]), each))
    return found
