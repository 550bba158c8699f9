"""The placement problem's kit: which node takes an arriving request."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.certify.certificate import Certificate, refusing
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_in
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import shift_label, with_interval
from evaluation.comparison.products import archive_facts
from evaluation.comparison.report.roles import strongest_rule
from evaluation.comparison.shifts import ShiftPlan, answerable, refuse_overlap
from evaluation.comparison.training_days import HOURS_UNSEEN, KEPT_BACK, plan_of, train_days_of
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.config import JudgeConfig
from evaluation.judges.descriptions import LADDER
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Certifier, ExportOptions, Facts, Inputs, Job, Kit, StepPlan
from evaluation.problems.placement.case import Case, refuse_uneven
from evaluation.problems.placement.certifying import certify
from evaluation.problems.placement.choices import (
    NO_CHOICE,
    OWN_NODES,
    no_choice_in,
    refuse_no_choice,
    untrainable,
)
from evaluation.problems.placement.comparing import COMPARISON_CODE, compare_case
from evaluation.problems.placement.dependences import dependences_in_words
from evaluation.problems.placement.exporting import build_bundle
from evaluation.problems.placement.generated_log import CLONE, generate_log
from evaluation.problems.placement.refreshing import placement_parts
from evaluation.problems.placement.shifted import ShiftedTwins, fit_beside
from evaluation.problems.placement.spreading import spread_in_words
from evaluation.problems.placement.starting import start_beside, train_beside
from evaluation.problems.placement.steps import (
    POLICY_CODE,
    POPULATION,
    TWIN_CODE,
    build_comparison,
    build_policy,
    build_twin,
    refuse_other_nodes,
)
from evaluation.problems.usual_job import bundle_step
from logs_schema import Archive
from logs_schema.background import Background
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.recipes.training import Contenders
from twin.placement.history import MOST_NODES
from twin.placement.model import PlacementTwin
from twin.problems import PLACEMENT


def lacking(archive: Archive) -> str:
    """Why an archive does not support placement, as a sentence; empty where requests have a choice between nodes."""
    if archive.num_rows("deployment_samples") and not archive.num_rows("requests"):
        return "the archive holds samples of deployments and no requests: nothing to place"
    nodes = archive.nodes()
    if nodes.num_rows == 1:
        return "the archive has one pool only: nothing to place"
    if nodes.num_rows and "decisions" in archive.facts.get("limits", {}):
        if all(nodes["virtual"].to_pylist()):
            return "the log has no choices between the archive's pools: nothing to place"
        return "the log never says on which of its nodes a request ran: no placements to learn from"
    return ""


def _refuse_several_queues(archive: Archive) -> None:
    pools = dict.fromkeys(archive.nodes()["node_class"].to_pylist())
    if lacking(archive) and len(pools) > 1:
        raise ConfigError(
            f"the log holds the queues of {len(pools)} pools, without choices between them: nothing to place",
            where=f"{archive.path}, table nodes, column node_class",
            allowed=", ".join(map(str, pools)),
            advice=f'learn the order of one queue: [order] with pool = "{next(iter(pools))}"',
        )


def fit_plan(config: RunConfig) -> StepPlan:
    """Fits the twin on the training days, and a population beside it."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        return build_twin(out, inputs["archive"], config, progress)

    settings = {
        "days": config.days,
        "shifts": config.shifts,
        "twin": config.twin,
        "population": config.population,
        **config.imitation.as_settings(),
    }
    return StepPlan("twin", build, settings, config.seed, TWIN_CODE)


def train_plan(config: RunConfig, begun: Background[Contenders] | None = None) -> StepPlan:
    """Trains the schedulers in the twin; `begun` as of `build_policy`."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        known = certification_in(inputs[CERTIFICATE]) if CERTIFICATE in inputs else None
        return build_policy(
            out,
            inputs["twin"],
            config,
            progress,
            begun=begun,
            certification=None if known is None else known.facts(),
            is_trusted=known is None or not known.failed,
        )

    return StepPlan("policy", build, config.train, config.seed, POLICY_CODE)


def compare_plan(
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    held_back: str = "",
    shifted: Background[ShiftedTwins] | None = None,
    judges: Mapping[str, UserJudge] | None = None,
) -> StepPlan:
    """The plan of a comparison on shifted days; `held_back`: why nothing was trained, if it was refused; `shifted`:
    from `fit_beside`; `policies` and `judges` are the user's."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        return build_comparison(
            out, inputs["archive"], inputs["twin"], inputs.get("policy"), config, progress, title=title,
            policies=policies, judges=judges, warnings=[held_back] if held_back else [], shifted=shifted,
        )  # fmt: skip

    settings: dict[str, Any] = {"shifts": config.shifts, "judge": config.judge, "intervals": config.intervals}
    settings |= {"title": title, "held_back": held_back} if held_back else {"title": title}
    settings |= {"policies": sorted(policies)} if policies else {}
    settings |= {"judges": sorted(judges)} if judges else {}
    return StepPlan("comparison", build, settings, config.judge.seed, COMPARISON_CODE)


def judge(
    policies: Mapping[str, UserPolicy],
    twin: PlacementTwin,
    archive: Archive,
    plan: ShiftPlan,
    progress: Progress,
    *,
    judge: JudgeConfig | None = None,
    intervals: IntervalConfig | None = None,
    judges: Mapping[str, UserJudge] | None = None,
) -> Comparison:
    """Policies in replay, in twins of the shifted days, where known in the truth, and by judges of the user's."""
    refuse_overlap(twin.encoding.train_days, plan.shifts)
    how = judge or JudgeConfig(off_policy_updates=0)
    case = Case(archive, twin, None, plan, how, intervals or IntervalConfig(), policies, judges or {})
    return compare_case(case, progress, facts=archive_facts(archive))


def certifier(twin_path: Path, population: Path | None) -> Certifier:
    """The certificate of a twin's answers and of its population."""
    manifest, twin, own = (
        read_manifest(twin_path, "twin"),
        PlacementTwin.load(twin_path),
        twin_path / POPULATION,
    )
    population = own if population is None and own.is_dir() else population
    notes = [manifest.extra["imitation"]["in_words"]] if "imitation" in manifest.extra else []

    def make(
        archive: Archive,
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        progress: Progress,
        keep: Unfinished,
    ) -> Certificate:
        return certify(
            twin, archive, days, config, progress,
            twin_hash=manifest.content_hash, population=population, notes=notes, keep=keep, twin_path=twin_path,
        )  # fmt: skip

    return Certifier(make, refusing(manifest.content_hash, twin.encoding.train_days))


def export(out: Path, policy: Path, options: ExportOptions) -> Facts:
    """The bundle of the named policy; ConfigError for the options `rule` and `comparison`."""
    if options.rule is not None or options.comparison is not None:
        raise ConfigError(
            "only the policy of a queue can be exported as a rule, or as the winner of a comparison",
            where="--rule, --comparison",
            allowed="together with a policy trained in the twin of a queue",
            advice="leave them out",
        )
    named = {} if options.policy is None else {"policy": options.policy}
    return build_bundle(
        out, policy, seed=options.seed, licence=options.licence, replace=options.replace, **named
    )


def generate(twin: Path, num_days: int, out: Path, progress: Progress, **options: Any) -> Any:
    """Days of log under a policy, by default the clone of the logged behaviour."""
    policy = options.pop("policy") or CLONE
    return generate_log(twin, num_days, out, progress, policy=policy, **options)


def run(job: Job) -> dict[str, Path]:
    """Fit, certify, train, compare, export; without a choice of node, or a passed certificate, no training.

    What is trained whatever the certificate says is trained beside it, begins beside the fit, and beside the rest of
    that training the twins of shifted days are fitted; of more than `MOST_NODES` nodes, where each takes gigabytes, one
    comes after the other.
    """
    config, archive = job.config, Archive(job.archive)
    _refuse_untestable(config, archive)
    is_beside = job.force and config.engine.is_here and archive.num_rows("nodes") <= MOST_NODES
    start = None
    if is_beside and not (job.archive.parents[1] / "twin").exists():
        start = start_beside(job.archive, config)
    twin = job.make([fit_plan(config).step("twin", ("archive",), job.resolve)])["twin"]
    without = no_choice_in(twin)
    has_choice = not without
    out, begun = twin.with_name("policy"), None
    if is_beside and has_choice and not out.exists():
        begun = train_beside(out, twin, config, job.progress, start)
    products = job.make([job.certificate])
    held_back = certification_in(products[CERTIFICATE]).held_back if has_choice and not job.force else ""
    inputs = ("archive", "twin")
    if not has_choice:
        job.progress.note(
            f"{without}, so nothing is trained or exported; to learn the order of its queue add "
            f"a table [order] to the configuration, or: schedtwin order {job.archive}"
        )
    if held_back or not has_choice:
        plan = compare_plan(config, job.title, {}, held_back)
        return job.make([plan.step("comparison", inputs, job.resolve)])
    shifted = None
    if begun is not None and config.judge.num_fit_steps and not twin.with_name("comparison").exists():
        shifted = fit_beside(job.archive, twin, config)
    return job.make(
        [
            train_plan(config, begun).step("policy", ("twin", CERTIFICATE), job.resolve),
            compare_plan(config, job.title, {}, shifted=shifted).step(
                "comparison", (*inputs, "policy"), job.resolve
            ),
            bundle_step(export),
        ]
    )


def _refuse_untestable(config: RunConfig, archive: Archive) -> None:
    """Raises ConfigError before the fit if the twin could not be used for training or comparison."""
    _refuse_several_queues(archive)
    answerable(plan_of(archive, train_days_of(archive, config.days, config.shifts), config.shifts))


def fitted(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    days = facts["train_days"]
    lines = [
        f"twin of {len(days)} days, {days[0]} to {days[-1]}: {facts['num_train_offers']:,} offers, held-out "
        f"log-likelihood {facts['held_out_log_likelihood']:.3f} nats an offer"
    ]
    lines += [f"warning: {facts[key]}" for key in (KEPT_BACK, HOURS_UNSEEN) if key in facts]
    if NO_CHOICE in facts:
        lines.append(f"warning: {untrainable(facts[NO_CHOICE])}")
    lines += [facts[OWN_NODES]] if OWN_NODES in facts else []
    lines.append(spread_in_words(facts["spread"]))
    if "dependences" in facts:  # earlier twins have none
        lines.append(dependences_in_words(facts["dependences"]))
    lines += [facts["imitation"]["in_words"]] if "imitation" in facts else []
    return [*lines, _population(facts["population"])]


def _population(facts: Facts) -> str:
    if facts["kind"] == "none":
        return f"no population: {facts.get('refusal', 'none was configured')}"
    rows = "requests" if facts["unit"] == "request" else "rows, equally many of every agent and day"
    summary = f"population: {facts['kind']} of {facts['num_rows']:,} {rows}"
    return "; ".join([summary, *([facts["fallback"]] if "fallback" in facts else []), *facts["warnings"]])


def trained(facts: Facts) -> list[str]:
    """Lines for the terminal on every seed of a training, and the chosen policy; training reward is no value of it."""
    columns = ("reward_with_held_out_member", "training_reward", "kl_to_clone")
    of_seeds = zip(facts["seeds"], *(facts[name] for name in columns), strict=bool(facts[columns[0]]))
    seeds = [
        f"seed {seed}: mean reward of a decision {value:.4f} with the member held out; training reward {reward:.4f} "
        f"at the end, {kl:.3f} nats from the clone"
        for seed, value, reward, kl in of_seeds
    ]
    return [*seeds, f"ladder: {facts['ladder']}"]


def compared(comparison: Comparison) -> list[str]:
    """Lines for the terminal below the table: the paired difference of the exported policy to the best rule."""
    rule, main = strongest_rule(comparison), comparison.main_metric
    if rule is None or LADDER not in {policy.name for policy in comparison.policies}:
        return []
    if comparison.is_alike(LADDER, rule):
        return [f"{LADDER}: no difference to {rule}, the strongest rule, in any measure"]
    found = [
        comparison.difference(judge.name, shift.shift_days, LADDER, rule, main)
        for judge in comparison.judges
        for shift in comparison.shifts
    ]
    return [
        f"{LADDER} less {rule}, {main}, by {one.judge} after {shift_label(one.shift_days)}: "
        f"{with_interval(one.estimate, signed=True)}: {one.verdict.value}"
        for one in found
        if one is not None
    ]


PLACEMENT_KIT = Kit(
    name=PLACEMENT,
    decides="which node takes an arriving request",
    needs="several nodes (table nodes) between which requests were placed (columns offered_node, ran_node of requests)",
    lacking=lacking,
    refuse_other_system=refuse_other_nodes,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export,
    certifier=certifier,
    generate=generate,
    refresh=placement_parts,
    run=run,
    refuse_untrainable=refuse_no_choice,
    refuse_config=refuse_uneven,
    fitted=fitted,
    trained=trained,
    compared=compared,
    twin=PlacementTwin,
    judge=judge,
    takes_judges=True,
    tasks=("certify", "train", "compare"),
)
