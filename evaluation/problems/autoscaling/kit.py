"""The autoscaling problem's kit: what each deployment of an application is granted, interval by interval.

`schedtwin reproduce drpc` compares more autoscalers, in the truth of simulated applications.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation.certify.certificate import Certificate
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_in
from evaluation.comparison.shifts import TestDays, refuse_overlap
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.autoscaling.certifying import certify, value_off_by
from evaluation.problems.autoscaling.exporting import export_policy
from evaluation.problems.autoscaling.forecast_lines import certify_forecasts
from evaluation.problems.autoscaling.judged_days import refuse_without_days
from evaluation.problems.autoscaling.notifying import logged_reward, notice_from
from evaluation.problems.autoscaling.reporting import COMPARISON_CODE, build_comparison, judge
from evaluation.problems.autoscaling.user_autoscalers import bundled_autoscaler
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import LATER_DAYS, Certifier, Facts, Inputs, Kit, StepPlan
from evaluation.problems.refresh_parts import Notice, RefreshParts
from evaluation.problems.usual_certifier import usual_certifier
from evaluation.problems.usual_refresh import usual_refresh
from logs_schema import Archive
from logs_schema.capabilities import percent
from logs_schema.errors import ConfigError, first
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.autoscaling.config import COST, SCALE_CODE, ScaleConfig
from offline_rl.recipes.scaling_task import setting_of
from offline_rl.recipes.scaling_training import build_policy, policy_of
from twin.autoscaling.fit import fit_application
from twin.autoscaling.gateway_forecasts.inputs import load_source_of
from twin.autoscaling.persistence import (
    ApplicationTwin,
    has_laws,
    load_application_twin,
    load_log,
    refuse_without_laws,
    save_application_twin,
    save_forecasts_alone,
    save_log,
)
from twin.autoscaling.scaling_log import TABLE, read_scaling_log
from twin.problems import AUTOSCALING as NAME
from twin.problems import KEY

OFTEN = 0.9
"""Share of the intervals in which an objective is to be kept."""
HELD_OUT = 5
"""One day of so many at the end of a log is kept for its certificate, where no training days are named."""


def lacking(archive: Archive) -> str:
    """Why a log holds nothing to scale, in words; empty where it does."""
    return "" if archive.num_rows(TABLE) else f"the archive has no {TABLE}"


def train_days_of(archive: Archive, days: DaysConfig) -> list[dt.date]:
    """The training days: those asked for; where their end is not given, a fifth of the log is left after them."""
    present = archive.days(TABLE)
    if not present:
        return []
    usual = present[max(len(present) - max(len(present) // HELD_OUT, 1), 1) - 1]
    last = days.last_day or (usual if (days.first_day or usual) <= usual else present[-1])
    if days.first_day and days.num_days and not days.last_day:
        last = days.first_day + dt.timedelta(days=days.num_days - 1)
    first = days.first_day or (last - dt.timedelta(days=days.num_days - 1) if days.num_days else present[0])
    chosen = [day for day in present if first <= day <= last]
    if not chosen:
        raise ConfigError(
            f"the log has no samples from {first} to {last}",
            where="[days]",
            allowed=f"days from {present[0]} to {present[-1]}",
        )
    return chosen


def fit_plan(config: RunConfig) -> StepPlan:
    """Learns the laws of the application and its load from the training days."""

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        archive = Archive(inputs["archive"])
        days = train_days_of(archive, config.days)
        log = read_scaling_log(archive, days, whole=False)
        if log.lacks:
            load_source_of(log)  # refuses a log without any load
            save_forecasts_alone(out, log)
        else:
            save_application_twin(out, fit_application(log))
        save_log(out, log)
        return {
            KEY: NAME,
            "deployments": list(log.deployments),
            "interval_s": log.interval_s,
            "train_days": [day.isoformat() for day in days],
            "train_days_hash": archive.days_hash(TABLE, days),
            LATER_DAYS: [day.isoformat() for day in archive.days(TABLE) if day > days[-1]],
            "num_intervals": int(log.is_logged.sum()),
            "censored": float(np.mean(log.censored[log.is_logged])),
            "lacks": log.lacks,
            "assumed": list(log.assumed),
        }

    return StepPlan("twin", build, {"problem": NAME, "days": config.days}, config.seed, SCALE_CODE)


def train_plan(config: RunConfig) -> StepPlan:
    """Calibrates rules and trains a teacher and its students in the twin, for each seed; seeds follow `seed`."""
    scale, seeds = (
        config.scale or ScaleConfig(),
        tuple(1000 * config.seed + seed for seed in config.train.seeds),
    )

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        twin, fitted = load_application_twin(inputs["twin"]), read_manifest(inputs["twin"], "twin")
        known = certification_in(inputs[CERTIFICATE]) if CERTIFICATE in inputs else None
        log = load_log(inputs["twin"])
        task = setting_of(scale, twin, log)
        keep = Unfinished.beside(
            out,
            "policy",
            {"twin": fitted.content_hash},
            {"scale": scale, "code": SCALE_CODE},
            progress=progress,
        )
        found = build_policy(
            out, twin, log, scale, seeds, progress, is_trusted=known is None or not known.failed,
            off_by=value_off_by(twin, log, task.scaling), keep=keep.folder,
        )  # fmt: skip
        keep.remove()
        return {
            KEY: NAME,
            "train_days": fitted.extra["train_days"],
            "logged_reward": logged_reward(task, log),
            **found,
            **(known.facts() if known else {}),
        }

    return StepPlan("policy", build, {"scale": scale, "seeds": seeds}, config.seed, SCALE_CODE)


def compare_plan(
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    judges: Mapping[str, UserJudge] | None = None,
) -> StepPlan:
    """Autoscalers in twins of the shifted days and, where known, in the truth; `policies` and `judges` are the
    user's."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        refuse_other_application(Archive(inputs["archive"]), inputs["twin"])
        return build_comparison(out, inputs, config, title, policies, progress, judges)

    settings = {
        "shifts": config.shifts,
        "scale": config.scale,
        "intervals": config.intervals,
        "title": title,
        "policies": sorted(policies),
    }
    settings |= {"judges": sorted(judges)} if judges else {}
    return StepPlan("comparison", build, settings, config.judge.seed, COMPARISON_CODE)


def certifier(twin_path: Path, population: Path | None) -> Certifier:
    """How a twin of an application is certified: on the days after training, where none are named. Of another archive,
    the log of another autoscaler say, all days are held out, and so is what the twin has no laws for: there it is the
    forecasts that are certified."""
    manifest = read_manifest(twin_path, "twin")

    def certify_days(
        archive: Archive,
        train_days: Sequence[dt.date],
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        twin_hash: str,
        keep: Unfinished,
    ) -> Certificate:
        present, own = archive.days(TABLE), manifest.extra.get("train_days_hash")
        known = set(train_days) <= set(present)
        is_own = own is None or (known and archive.days_hash(TABLE, train_days) == own)
        later = [day for day in present if day > train_days[-1] or not is_own] if days is None else list(days)
        if is_own:
            refuse_overlap(train_days, [TestDays(0, tuple(later), None)])
        if is_own and has_laws(twin_path):
            twin = load_application_twin(twin_path)
            return certify(twin, archive, train_days, later, config, twin_hash, keep)
        log = replace(load_log(twin_path), assumed=tuple(manifest.extra.get("assumed", ())))
        return certify_forecasts(log, archive, train_days, later, config, twin_hash)

    return usual_certifier(twin_path, population, certify_days)


def refuse_other_application(archive: Archive, twin: Path) -> None:
    """ConfigError where the archive lacks deployments of the twin."""
    known = read_manifest(twin, "twin").extra["deployments"]
    there = set(archive.read(TABLE, columns=["deployment"])["deployment"].to_pylist())
    if missing := [name for name in known if name not in there]:
        raise ConfigError(
            f"the archive does not know {', '.join(missing)}",
            where=str(archive.path),
            allowed="a log of the application that the twin is of",
            advice="fit a twin on this archive",
        )


def fitted(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    number = len(facts["deployments"])
    words = f"{number} {'deployment' if number == 1 else 'deployments'}"
    begin = f"{words} learned from {facts['num_intervals']:,} intervals of {facts['interval_s']:g} s"
    lines = [_days_in_words(facts["train_days"], facts.get(LATER_DAYS))]
    if facts["lacks"]:
        told = f"the log lacks {first(facts['lacks'])}: this twin forecasts what users see from load and grants, and "
        return [f"{begin}; {told}nothing can be trained in it", *lines]
    share = facts["censored"]
    short = f"{begin}; {percent(share) if share else 'none'} were short of capacity or not logged"
    return [
        f"{short}, and are left out" if share else short,
        *(f"not logged, {one}" for one in facts["assumed"]),
        *lines,
    ]


def _days_in_words(train_days: Sequence[str], later: Sequence[str] | None) -> str:
    """Which days were learned from, and which are left to hold the twin against; None: that is not known."""
    learned = f"learned from {_span(train_days)}"
    if later is None:
        return learned
    if not later:
        return f"{learned}; no later day is left to hold it against, only the log of another autoscaler"
    return (
        f"{learned}; {_span(later)} kept to hold it against ([days] last_day = {later[-1]} in a --config learns from "
        "all: to forecast the log of another autoscaler, say)"
    )


def _span(days: Sequence[str]) -> str:
    if len(days) == 1:
        return days[0]
    return f"{days[0]} to {days[-1]} ({len(days)} days)"


def trained(facts: Facts) -> list[str]:
    """Lines for the terminal on a training."""
    source = (
        ""
        if facts["objective_is_given"]
        else ", which the log kept in nine of ten intervals ([scale] slo_s says)"
    )
    lines = [f"objective: 95 % of the requests within {facts['objective_s']:.3g} s{source}"]
    for name, found in sorted(facts["tried"].items(), key=lambda pair: -pair[1]["reward"]):
        lines.append(
            f"{name}: reward {found['reward']:.2f}, {found['cpu_cores']:.1f} cores, mean response "
            f"{found['mean_response_s']:.3f} s{_kept_in_words(found)} in the twin"
        )
    if (reward := facts.get("teacher_reward", COST)) != COST:
        lines.append(f"teacher and its students were trained for {reward}; all rewards told here are {COST}")
    lines += [*_unreachable(facts), *_beside_the_log(facts)]
    if not (best := facts["best_learned"]):
        return [*lines, f"recommended: {facts['recommended']}; nothing was learned ([scale] updates)"]
    low = facts["gain_low"]
    gain = f"{best} gains {facts['gain']:.2f} over {facts['rule']} in the twin"
    gain += ", one episode says nothing of how sure" if low is None else f", {low:.2f} at least (95 %)"
    gain += f", but {facts['held_back']}" if facts["held_back"] else ""
    return [*lines, f"{gain}: {facts['recommended']} is handed over"]


def _kept_in_words(found: Mapping[str, float]) -> str:
    kept = found.get("objective_kept")
    return "" if kept is None else f", the objective kept in {percent(kept)} of the intervals"


def _unreachable(facts: Facts) -> list[str]:
    """That nobody can keep the objective, or what is handed over does not, and what could be kept."""
    reachable_s, name = facts.get("reachable_s", 0.0), facts["recommended"]
    kept = facts["tried"][name].get("objective_kept", 1.0)
    if facts["objective_s"] < reachable_s:
        return [
            "nobody can keep this objective: with all that the bounds allow, 95 % of the requests are within "
            f"{reachable_s:.3g} s in nine of ten intervals of the twin. Name [scale] slo_s = {reachable_s:.3g} or "
            "more, or raise replicas_beyond where more replicas would help"
        ]
    if kept < OFTEN:
        return [
            f"{name} keeps the objective in {percent(kept)} of the intervals, and more is not worth its cores (with "
            f"all that the bounds allow, {reachable_s:.3g} s could be kept): for more raise [scale] violation_weight"
        ]
    return []


def _beside_the_log(facts: Facts) -> list[str]:
    """What the log itself earned, which is measured, and what the twin promises over it of what is handed over."""
    earned, name = facts.get("logged_reward"), facts["recommended"]
    if earned is None:
        return []
    found = facts["over_log"][name]
    lines = [
        f"the log's own autoscaler: reward {earned:.2f}, as logged; {name} gains {found['gain']:.2f} over it under the "
        f"load of the log, {found['least']:.2f} at least (95 %)"
    ]
    if 2.0 * found["gain"] < found["least"]:  # the upper end of its interval is below zero
        lines.append(f"keep what runs: the twin says that {name} is surely worse")
    elif found["least"] <= facts["off_by"]:
        lines.append(
            f"the twin, whose value of the logged grants is off by {facts['off_by']:.2f}, does not show that {name} is "
            "better than that: let it recommend beside what runs, before it writes anything"
        )
    return lines


def refresh_parts(config: RunConfig) -> RefreshParts:
    """What a refresh judges; a bundle is refused where it is of other deployments, or damaged."""

    def refuse_other(bundle: Path, twin: Path) -> None:
        bundled_autoscaler(bundle, load_application_twin(twin).deployments, policy_of)

    def notifier(history: Path, bundle: Path, days: tuple[dt.date, ...], below: float | None) -> Notice:
        return notice_from(history, bundle, days, below)

    parts = usual_refresh(config, compare_plan, refuse_other, num_days=1, table=TABLE)
    return replace(parts, notifier=notifier)


AUTOSCALING_KIT = Kit(
    name=NAME,
    decides="what each deployment of an application is granted",
    needs="deployment_samples: rate, response time and use of every deployment, and of the gateway",
    lacking=lacking,
    claims=lambda config: config.scale is not None,
    refuse_other_system=refuse_other_application,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export_policy,
    certifier=certifier,
    refuse_untrainable=refuse_without_laws,
    refuse_untestable=lambda config, archive: refuse_without_days(
        archive, train_days_of(archive, config.days), config.shifts
    ),
    fitted=fitted,
    trained=trained,
    refresh=refresh_parts,
    twin=ApplicationTwin,
    judge=judge,
    takes_judges=True,
    refuses_lacking=True,
)
