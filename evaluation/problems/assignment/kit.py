"""The assignment problem's kit: many requests at once, an edge for each, round after round (CoRaiS).

`schedtwin reproduce corais` solves drawn instances of the paper's scales.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.certify.persistence import certification_facts
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.products import (
    refuse_other_days,
    refuse_other_twin,
    remarks_on_training,
    train_days_in,
    trained_in,
)
from evaluation.comparison.report import Report, write_comparison
from evaluation.comparison.shifts import ShiftPlan
from evaluation.comparison.training_days import plan_of, train_days_of
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.named import refuse_taken
from evaluation.judges.user_judges import UserJudge, judged_by_users
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.assignment.certifying import certify_edges
from evaluation.problems.assignment.compared_assigners import compared_assigners
from evaluation.problems.assignment.comparing import JUDGES, compare_assigners, judged_days, judged_solvers
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Certifier, ExportOptions, Facts, Inputs, Kit, StepPlan
from evaluation.problems.refresh_parts import RefreshParts
from evaluation.problems.usual_certifier import on_first_days, usual_certifier
from evaluation.problems.usual_refresh import usual_refresh
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.assignment.assigner import load_assigner
from offline_rl.assignment.config import ASSIGN_CODE, AssignConfig
from offline_rl.assignment.rungs import NETWORK, in_words
from offline_rl.assignment.training import build_policy, export_policy
from twin.assignment.from_logs import EdgesFromLog, fit_edges, lacking
from twin.assignment.persistence import load_edges, save_edges
from twin.problems import ASSIGNMENT as NAME
from twin.problems import KEY

JUDGE_DAYS = 2
LIMITS = (
    "Services are not distinguished: an edge's computing time is a function of the size alone.",
    "Every request that ran is played, and no agent refuses: acceptance is no part of this problem.",
    "Intervals are over blocks of one stretch of requests; they do not tell how days differ.",
)


def refuse_other_nodes(archive: Archive, twin: Path) -> None:
    """ConfigError where the archive lacks edges of the twin, or has other requests on its training days."""
    _refuse_unknown(archive, read_manifest(twin, "twin").extra["nodes"])
    refuse_other_days(archive, twin)


def _refuse_unknown(archive: Archive, known: Sequence[str]) -> None:
    there = set(archive.nodes()["node_id"].to_pylist())
    if missing := [name for name in known if name not in there]:
        raise ConfigError(
            f"the archive does not know the nodes {', '.join(missing)}",
            where=str(archive.path),
            allowed="a log of the edges that the twin is of",
            advice="fit a twin on this archive",
        )


def edge_facts(edges: EdgesFromLog) -> dict[str, Any]:
    """What a fit found, as plain JSON: by edge its function, and by whose history."""
    return {
        name: {
            "kind": one.kind,
            "coefficients": list(one.coefficients),
            "spread": one.spread,
            "num_rows": one.num_rows,
            "source": one.source,
            "replicas": edges.replicas[name],
        }
        for name, one in edges.compute.items()
    }


def fit_plan(config: RunConfig) -> StepPlan:
    """Learns every edge's computing time, and the ways between sites, from the training days."""

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        archive = Archive(inputs["archive"])
        days = train_days_of(archive, config.days, config.shifts)
        edges = fit_edges(archive, days)
        save_edges(out, edges)
        return {
            KEY: NAME,
            "nodes": list(edges.names),
            "size": edges.size,
            "num_rows": edges.num_rows,
            "edges": edge_facts(edges),
            "notes": list(edges.notes),
            "has_ways": bool(edges.ways),
            "train_days": [day.isoformat() for day in days],
            "train_days_hash": archive.days_hash("requests", days),
        }

    settings = {"problem": NAME, "days": config.days, "shifts": config.shifts}
    return StepPlan("twin", build, settings, config.seed, ASSIGN_CODE)


def train_plan(config: RunConfig) -> StepPlan:
    """Trains networks on rounds of the twin and climbs the ladder."""
    assign = config.assign or AssignConfig()

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        twin, known = read_manifest(inputs["twin"], "twin"), certification_facts(inputs)
        made_from = {"twin": twin.content_hash, "code": str(ASSIGN_CODE)}
        keep = Unfinished.beside(out, "policy", made_from, assign, config.seed, progress=progress)
        found = build_policy(out, load_edges(inputs["twin"]), assign, config.seed, progress, keep.folder)
        keep.remove()
        facts = twin.extra
        return {KEY: NAME, "nodes": facts["nodes"], "train_days": facts["train_days"], **found, **known}

    return StepPlan("policy", build, {"assign": assign}, config.seed, ASSIGN_CODE)


def compare_plan(
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    judges: Mapping[str, UserJudge] | None = None,
) -> StepPlan:
    """Schedulers in rounds of the shifted days' own requests; `policies` and `judges` are the user's."""
    assign, seed = config.assign or AssignConfig(), config.judge.seed

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        archive, policy = Archive(inputs["archive"]), inputs.get("policy")
        refuse_other_nodes(archive, inputs["twin"])
        refuse_other_twin(policy, inputs["twin"])
        plan = plan_of(archive, train_days_in(inputs["twin"]), config.shifts)
        hashes = {name: content_hash_of(path) for name, path in inputs.items()}
        played = {"shifts": config.shifts, "assign": assign, "code": ASSIGN_CODE}
        keep = Unfinished.beside(out, "comparison", hashes, played, seed, progress=progress)
        comparison = judge(
            policies, load_edges(inputs["twin"]), archive, plan, progress, assign=assign,
            intervals=config.intervals, seed=seed, judges=judges, policy=policy, keep=keep,
        )  # fmt: skip
        limits, warnings = remarks_on_training(policy)
        report = Report(title, comparison, hashes=hashes, limits=(*limits, *LIMITS), warnings=warnings)
        facts = write_comparison(report, out)
        keep.remove()
        return facts

    settings = {
        "shifts": config.shifts,
        "assign": assign,
        "intervals": config.intervals,
        "title": title,
        "policies": sorted(policies),
    }
    settings |= {"judges": sorted(judges)} if judges else {}
    return StepPlan("comparison", build, settings, seed, ASSIGN_CODE)


def judge(
    policies: Mapping[str, UserPolicy],
    twin: EdgesFromLog,
    archive: Archive,
    plan: ShiftPlan,
    progress: Progress,
    *,
    assign: AssignConfig | None = None,
    intervals: IntervalConfig | None = None,
    seed: int = 0,
    judges: Mapping[str, UserJudge] | None = None,
    policy: Path | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """Schedulers in rounds of the shifted days, by model, truth and the user's judges; `policy` is of a training, and
    `keep` holds what is known of all schedulers but the user's."""
    assign, intervals, judges = assign or AssignConfig(), intervals or IntervalConfig(), judges or {}
    refuse_taken(judges, list(JUDGES), "judge")
    _refuse_unknown(archive, twin.names)
    assigners, own = compared_assigners(policy, policies)
    comparison = compare_assigners(
        archive, plan, twin, assign, assigners, intervals, progress, seed=seed, keep=keep
    )
    return judged_by_users(
        own.left_out_of(comparison),
        judges,
        judged_solvers(assigners, seed),
        judged_days(archive, comparison, twin, assign, seed),
        intervals,
        progress,
    )


def export(out: Path, policy: Path, options: ExportOptions) -> Facts:
    """The bundle of what won the ladder, or of a scheduler asked for by its name there.

    Raises:
        ConfigError: There is no such scheduler, or a rule or a comparison is asked for.
    """
    manifest = read_manifest(policy, "policy")
    trained: dict[str, Any] = manifest.extra
    if options.rule is not None or options.comparison is not None:
        raise ConfigError(
            "the ladder of the training chooses the scheduler",
            where="--rule, --comparison",
            allowed=f"--policy {', '.join(trained['tried'])}",
            advice="leave them out",
        )
    name = options.policy or (trained["chosen"] if options.seed is None else NETWORK)
    if name == NETWORK:
        name = f"{NETWORK}-{trained['seeds'][0] if options.seed is None else options.seed}"
    facts = {
        "chosen": name,
        "tried": trained["tried"].get(name),
        "recommended": trained["chosen"],
        "learning": trained["learning"],
        "licence": options.licence,
        "train_days": trained["train_days"],
        "certificate": trained.get("certificate"),
        **trained_in(manifest),
    }
    export_policy(
        out,
        policy,
        trained,
        name,
        made_from={"policy": manifest.content_hash},
        extra=facts,
        replace_bundle=options.replace,
    )
    return facts


def certifier(twin: Path, population: Path | None) -> Certifier:
    """How edges are certified: on the first days after training, where none are named."""
    return usual_certifier(twin, population, on_first_days(partial(certify_edges, load_edges(twin))))


def fitted(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    ways = (
        "ways between sites as the log times them"
        if facts["has_ways"]
        else "no ways: the log does not time them"
    )
    return [
        f"{len(facts['nodes'])} edges learned from {facts['num_rows']:,} requests, sizes by {facts['size']}; {ways}",
        *(f"  {note}" for note in facts["notes"]),
    ]


def trained(facts: Facts) -> list[str]:
    """The ladder, best first, and what is handed over."""
    return [
        f"rounds of {facts['num_requests']} requests and {facts['num_edges']} edges, {facts['search_s']:g} s an answer",
        *in_words(facts["chosen"], facts["tried"], facts["level"]),
    ]


def refresh_parts(config: RunConfig) -> RefreshParts:
    """What a refresh judges; any scheduler takes any edges, so a bundle is refused only where it is damaged."""

    def refuse_damaged(bundle: Path, _twin: Path) -> None:
        load_assigner(bundle)

    return usual_refresh(config, compare_plan, refuse_damaged, num_days=JUDGE_DAYS)


ASSIGNMENT_KIT = Kit(
    name=NAME,
    decides="which edge takes each of many requests at once",
    needs="requests with a size, the node that ran them and the time they took, and two nodes or more",
    lacking=lacking,
    claims=lambda config: config.assign is not None,
    refuse_other_system=refuse_other_nodes,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export,
    certifier=certifier,
    fitted=fitted,
    trained=trained,
    refresh=refresh_parts,
    twin=EdgesFromLog,
    judge=judge,
    takes_judges=True,
    refuses_lacking=True,
)
