"""The orchestration problem's kit: what the commands fit, certify and compare are given."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from evaluation.certify.persistence import certification_facts
from evaluation.comparison.products import (
    refuse_other_days,
    refuse_other_twin,
    remarks_on_training,
    train_days_in,
)
from evaluation.comparison.report import Report, write_comparison
from evaluation.comparison.training_days import plan_of, train_days_of
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Certifier, ExportOptions, Facts, Inputs, Kit, StepPlan
from evaluation.problems.orchestration.certifying import certify_twin
from evaluation.problems.orchestration.comparing import PlayConfig, compare_pairs
from evaluation.problems.orchestration.generating import generate_slots
from evaluation.problems.orchestration.trained import trained_pair
from evaluation.problems.orchestration.training import build_policy, export_bundle
from evaluation.problems.usual_certifier import on_first_days, usual_certifier
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.orchestration.config import ORCHESTRATION_CODE, TrainingBudget
from twin.orchestration.encode import missing_from
from twin.orchestration.fit import FittedCluster, fit_orchestration
from twin.orchestration.persistence import load_fitted, save_fitted
from twin.problems import KEY
from twin.problems import ORCHESTRATION as NAME


def refuse_other_nodes(archive: Archive, twin: Path) -> None:
    """ConfigError where the archive has other nodes than the twin, or other requests on its days of training."""
    known, found = read_manifest(twin, "twin").extra["nodes"], archive.nodes()["node_id"].to_pylist()
    if sorted(known) != sorted(found):
        raise ConfigError(
            "the archive has other nodes than the twin",
            where=f"{archive.path}: {', '.join(found)}",
            allowed=", ".join(known),
            advice="fit a twin on this archive",
        )
    refuse_other_days(archive, twin)


def fit_plan(config: RunConfig) -> StepPlan:
    """Learns the chance of slot mode from the training days."""

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        archive = Archive(inputs["archive"])
        days = train_days_of(archive, config.days, config.shifts)
        fitted = fit_orchestration(archive, days)
        save_fitted(out, fitted)
        return {
            KEY: NAME,
            "nodes": list(fitted.edge.cluster.node_names),
            "services": list(fitted.edge.cluster.services[1:]),
            "train_days": [day.isoformat() for day in days],
            "train_days_hash": archive.days_hash("requests", days),
            "num_requests": len(fitted.tables.requested_run_s),
        }

    settings = {"days": config.days, "shifts": config.shifts}
    return StepPlan("twin", build, settings, config.seed, ORCHESTRATION_CODE)


def train_plan(config: RunConfig) -> StepPlan:
    """Trains a dispatcher and an orchestrator in the twin."""
    budget = config.orchestration or TrainingBudget()

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        known = certification_facts(inputs)
        fitted, twin = load_fitted(inputs["twin"]), read_manifest(inputs["twin"], "twin")
        made_from = {"twin": twin.content_hash, "code": str(ORCHESTRATION_CODE)}
        keep = Unfinished.beside(out, "policy", made_from, budget, config.seed, progress=progress)
        found = build_policy(out, fitted, budget, config.seed, progress, keep.folder)
        keep.remove()
        facts = twin.extra
        return {KEY: NAME, "nodes": facts["nodes"], "train_days": facts["train_days"], **found, **known}

    return StepPlan("policy", build, {"budget": budget}, config.seed, ORCHESTRATION_CODE)


def compare_plan(
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    judges: Mapping[str, UserJudge] | None = None,
) -> StepPlan:
    """Judges pairs of dispatcher and orchestrator on shifted days; `policies` and `judges` are the user's."""
    play = PlayConfig(seed=config.judge.seed)

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        archive, policy = Archive(inputs["archive"]), inputs.get("policy")
        refuse_other_nodes(archive, inputs["twin"])
        refuse_other_twin(policy, inputs["twin"])
        plan = plan_of(archive, train_days_in(inputs["twin"]), config.shifts)
        hashes = {name: content_hash_of(path) for name, path in inputs.items()}
        made = {"shifts": config.shifts, "play": play, "code": ORCHESTRATION_CODE}
        keep = Unfinished.beside(out, "comparison", hashes, made, progress=progress)
        comparison = compare_pairs(
            policies, load_fitted(inputs["twin"]), archive, plan, progress, play=play, intervals=config.intervals,
            judges=judges, trained=None if policy is None else trained_pair(policy), keep=keep,
        )  # fmt: skip
        limits, warnings = remarks_on_training(policy)
        facts = write_comparison(Report(title, comparison, limits=limits, warnings=warnings), out)
        keep.remove()
        return facts

    settings = {"shifts": config.shifts, "intervals": config.intervals, "play": play, "title": title}
    settings |= {"policies": sorted(policies)} if policies else {}
    settings |= {"judges": sorted(judges)} if judges else {}
    return StepPlan("comparison", build, settings, config.judge.seed, ORCHESTRATION_CODE)


def certifier(twin: Path, population: Path | None) -> Certifier:
    """How a twin is certified: on the first days after training, where none are named."""
    return usual_certifier(twin, population, on_first_days(partial(certify_twin, load_fitted(twin))))


def export(out: Path, policy: Path, options: ExportOptions) -> Facts:
    """The bundle of both policies; ConfigError where another than what training chose is asked for."""
    asked = (options.policy, options.rule, options.comparison, options.seed)
    if any(one is not None for one in asked):
        raise ConfigError(
            "a training of dispatcher and orchestrator hands over the pair that it chose",
            where="--policy, --rule, --comparison, --seed",
            allowed="none of them",
            advice="leave them out",
        )
    return export_bundle(out, policy, licence=options.licence, replace=options.replace)


def fitted_lines(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    nodes, services = len(facts["nodes"]), len(facts["services"])
    return [f"{nodes} nodes and {services} services learned from {facts['num_requests']:,} requests"]


def trained_lines(facts: Facts) -> list[str]:
    """What was tried in the twin, best first, and what is handed over."""
    found, gain = sorted(facts["tried"].items(), key=lambda pair: -pair[1]), facts["gain_at_least"]
    why = (
        f"better than the rules by at least {gain:.1%}" if gain else "nothing is surely better than the rules"
    )
    return [
        *(f"{name}: {share:.1%} on time in the twin" for name, share in found),
        f"chosen: {facts['chosen']}, {why}",
    ]


ORCHESTRATION_KIT = Kit(
    name=NAME,
    decides="where requests of access points go every slot, and which replicas change every frame",
    needs="requests with access points and dispatch times, replicas, node_samples and the settings of slots",
    lacking=missing_from,
    claims=lambda config: config.orchestration is not None,
    refuse_other_system=refuse_other_nodes,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export,
    certifier=certifier,
    fitted=fitted_lines,
    trained=trained_lines,
    refuses_lacking=True,
    twin=FittedCluster,
    judge=compare_pairs,
    takes_judges=True,
    generate=generate_slots,
)
