"""The kit of the problem: what the commands fit, certify, train, compare and export are given."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.certify.certificate import Certificate
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import certification_facts
from evaluation.comparison.products import refuse_other_days, refuse_other_twin, train_days_in, trained_in
from evaluation.comparison.report import Report, write_comparison
from evaluation.comparison.training_days import plan_of, train_days_of
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_policies import Takes, UserPolicy, enter, tried
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Certifier, ExportOptions, Facts, Inputs, Kit, StepPlan
from evaluation.problems.usual_certifier import usual_certifier
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.contract import FeatureFacts, PolicyContract
from offline_rl.export import export_policy, network_facts
from offline_rl.networks import example_of
from twin.problems import KEY

from .edges import cores_of, fit_edges, lacking, load_edges, names_of, read_batches, save_edges
from .judging import COMPARED, certify, judge
from .learning import learn, load_actors, mean_response_s, policy_of, save_actors, twin_of

NAME = "batches"
SIGNATURE = "a function (key, observation, legal) -> edges [1, *streams]; legal [edges, 1, *streams] bool"


def refuse_other_edges(archive: Archive, twin: Path) -> None:
    """ConfigError where the archive has other edges than the twin, or other batches on its days of training."""
    known = read_manifest(twin, "twin").extra["nodes"]
    if known != list(names_of(archive)):
        raise ConfigError(
            "the archive has other edges than the twin",
            where=f"{archive.path}: {', '.join(names_of(archive))}",
            allowed=", ".join(known),
            advice="fit a twin on this archive",
        )
    refuse_other_days(archive, twin)


def fit_plan(config: RunConfig) -> StepPlan:
    """Learns the edges from the training days."""

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        archive = Archive(inputs["archive"])
        days = train_days_of(archive, config.days, config.shifts)
        batches = read_batches(archive, days)
        save_edges(out, fit_edges(batches, cores_of(archive)))
        return {
            KEY: NAME,
            "nodes": list(names_of(archive)),
            "train_days": [day.isoformat() for day in days],
            "train_days_hash": archive.days_hash("requests", days),
            "num_batches": len(batches.edge),
        }

    return StepPlan("twin", build, {"days": config.days, "shifts": config.shifts}, config.seed)


def train_plan(config: RunConfig) -> StepPlan:
    """Trains a policy for each seed of the configuration."""
    seeds = tuple(config.train.seeds)

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        edges, twin = load_edges(inputs["twin"]), read_manifest(inputs["twin"], "twin").extra
        params = learn(edges, seeds)
        save_actors(out, params)
        save_edges(out, edges)
        actors = load_actors(out, len(seeds))
        known = certification_facts(inputs)
        return {
            **{name: twin[name] for name in (KEY, "nodes", "train_days")},
            "seeds": list(seeds),
            "mean_response_s": [mean_response_s(edges, policy_of(edges, one)) for one in actors],
            **known,
        }

    return StepPlan("policy", build, {"seeds": seeds}, config.seed)


def compare_plan(config: RunConfig, title: str, policies: Mapping[str, UserPolicy]) -> StepPlan:
    """Judges the trained policies and the user's functions on shifted days."""

    def build(out: Path, inputs: Inputs, _progress: Progress) -> Facts:
        archive, own = Archive(inputs["archive"]), {}
        example = example_of(twin_of(load_edges(inputs["twin"])))
        takes = Takes(SIGNATURE, lambda name, policy: tried(name, policy, example, SIGNATURE))
        entered = enter(policies, ("ppo", *COMPARED), takes)
        if (folder := inputs.get("policy")) is not None:
            refuse_other_twin(folder, inputs["twin"])
            edges, seeds = load_edges(folder), read_manifest(folder, "policy").extra["seeds"]
            own = {"ppo": [policy_of(edges, one) for one in load_actors(folder, len(seeds))]}
        plan = plan_of(archive, train_days_in(inputs["twin"]), config.shifts)
        everybody = own | {name: [policy] for name, policy in entered.ready.items()}
        comparison = judge(archive, plan, everybody, config.intervals)
        return write_comparison(Report(title, entered.left_out_of(comparison)), out)

    settings = {
        "shifts": config.shifts,
        "intervals": config.intervals,
        "policies": sorted(policies),
        "title": title,
    }
    return StepPlan("comparison", build, settings)


def certifier(twin: Path, population: Path | None) -> Certifier:
    """How the learned edges are certified: on all days after training, where none are named."""
    edges = load_edges(twin)

    def later(
        archive: Archive,
        train_days: Sequence[dt.date],
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        twin_hash: str,
        _keep: Unfinished,
    ) -> Certificate:
        held_out = [day for day in archive.days("requests") if day > train_days[-1]] if days is None else days
        return certify(edges, archive, train_days, held_out, config, twin_hash)

    return usual_certifier(twin, population, later)


def export(out: Path, policy: Path, options: ExportOptions) -> Facts:
    """The bundle of the seed asked for, else of the one with the least mean response in the twin."""
    manifest, edges = read_manifest(policy, "policy"), load_edges(policy)
    facts = manifest.extra
    values = dict(zip(facts["seeds"], facts["mean_response_s"], strict=True))
    seed = min(values, key=values.__getitem__) if options.seed is None else options.seed
    if seed not in values:
        raise ConfigError(f"there is no policy of seed {seed}", allowed=", ".join(map(str, values)))
    params = load_actors(policy, len(values))[facts["seeds"].index(seed)]
    contract = PolicyContract(
        problem=NAME,
        choice_features=(FeatureFacts("log_cores", "log of cores", description="capacity of the edge"),),
        context_features=(FeatureFacts("log_size", "log of MiB", description="size of the batch"),),
        choices=tuple(facts["nodes"]),
        network=network_facts(params),
        legality="every edge may take every batch",
        action="index of the edge (of the contract's choices) that takes the whole batch",
        normalisation="none is fitted: natural logarithms",
        setting={"cores": [float(one) for one in edges.cores]},
        trained_on=trained_in(manifest),
        certificate=facts.get("certificate"),
        **({} if options.licence is None else {"licence": options.licence}),
    )
    made_from = {"policy": manifest.content_hash}
    export_policy(params, out, contract, made_from=made_from, seed=seed, replace=options.replace)
    return {"seed": seed, "policy": "ppo"}


def fitted(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    return [f"{len(facts['nodes'])} edges learned from {facts['num_batches']:,} batches"]


def trained(facts: Facts) -> list[str]:
    """Lines for the terminal on a training."""
    pairs = zip(facts["seeds"], facts["mean_response_s"], strict=True)
    return [f"seed {seed}: mean response {value:.3f} s in the twin" for seed, value in pairs]


BATCHES_KIT = Kit(
    name=NAME,
    decides="which edge takes a whole batch",
    needs="requests with a size (column input_mib) and the edge that took them (column offered_node)",
    lacking=lacking,
    refuse_other_system=refuse_other_edges,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export,
    certifier=certifier,
    fitted=fitted,
    trained=trained,
)
