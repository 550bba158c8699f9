"""Makes a report from the products of a job: the comparison, the twin's fit, and the limits of the log."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import as_sentence
from evaluation.comparison.products import in_certified_twin, training_in_words
from evaluation.comparison.report import CapabilityRow, Chart, Curve, Fact, Rejected, Report
from evaluation.comparison.shifts import ShiftPlan
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.calibration import calibration_charts
from evaluation.problems.placement.choices import NO_CHOICE, OWN_NODES
from logs_schema import Archive, check
from logs_schema.product import Manifest, read_manifest
from logs_schema.records import to_plain
from offline_rl.recipes.cloning import evaluations_of
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.schedulers import Schedulers
from twin.placement.fit import FitReport
from twin.placement.history import labelled_offers
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin

OF_TWIN = ("days", "twin", "population", "imitation")
"""Tables of settings that a twin is made with."""
BESIDE_LOG = "beside_log"
"""Key in the manifest of a policy: that it is not surely better than the logged behaviour, in words; else empty."""
_SUPPORT = {"yes": "yes", "partial": "partly", "no": "no"}


def fit_facts(twin: PlacementTwin) -> tuple[Fact, ...]:
    """What is measured about a twin's fit."""
    report, encoding = twin.report, twin.encoding
    best = np.nanmax(report.held_out_log_likelihood, axis=0)
    kind = "node classes" if encoding.by_class else "nodes"
    spread = f"{best.mean():.3f} ({best.min():.3f} to {best.max():.3f})"
    return (
        Fact("training offers", f"{int(report.num_train):,}", "offers", "training requests with a known decision"),
        Fact("held-out offers", f"{int(report.num_held_out):,}", "offers", "held out to stop the fit in time"),
        Fact(
            "held-out log-likelihood", spread, "nats an offer",
            "mean over members (worst to best); comparable between fits of one log only",
        ),
        Fact("decisions name", kind, "", ", ".join(encoding.cluster.node_names[:12])),
        Fact("slots per node", str(encoding.problem.depth), "requests", "room for requests in flight"),
    )  # fmt: skip


def learning_charts(
    report: FitReport,
    schedulers: Schedulers | None,
    evaluate_every: int,
    seeds: Sequence[int] = (),
    clone_updates: int = TrainingConfig.clone_updates,
) -> tuple[Chart, ...]:
    """Curves of the twin's fit, the clone and the policies; `seeds` are those of the policies, in their order, and
    `clone_updates` the clone's gradient steps at most."""
    evaluations = np.arange(1, len(report.held_out_log_likelihood) + 1) * float(evaluate_every)
    members = [
        Curve(f"member {member + 1}", tuple(evaluations), tuple(map(float, curve)))
        for member, curve in enumerate(np.asarray(report.held_out_log_likelihood).T)
    ]
    charts = [
        Chart(
            "Fit of the twin",
            "gradient steps",
            "held-out log-likelihood (nats an offer)",
            tuple(members),
            "Each member keeps the parameters of its highest point; a curve ends where the member stopped.",
        )
    ]
    if schedulers is None:
        return tuple(charts)
    steps = np.arange(1, len(schedulers.clone_curve) + 1) * float(evaluations_of(clone_updates)[1])
    clone = tuple(
        Curve(name, tuple(steps), tuple(map(float, schedulers.clone_curve[:, column])))
        for column, name in enumerate(("training windows", "held-out windows"))
    )
    charts.append(
        Chart(
            "Behaviour cloning",
            "gradient steps",
            "cross-entropy (nats a decision)",
            clone,
            "The clone keeps the parameters of the lowest held-out point.",
        )
    )
    if not schedulers.num_trained:
        return tuple(charts)
    updates = np.arange(1, schedulers.reward_curve.shape[1] + 1, dtype=float)
    rewards = tuple(
        Curve(f"seed {seed}", tuple(updates), tuple(map(float, curve)))
        for seed, curve in zip(seeds, schedulers.reward_curve, strict=True)
    )
    evaluations = np.linspace(0.0, len(updates), schedulers.held_out_curve.shape[1])
    held_out = tuple(
        Curve(f"seed {seed}", tuple(evaluations), tuple(map(float, curve)))
        for seed, curve in zip(seeds, schedulers.held_out_curve, strict=True)
    )
    charts += [
        Chart("Training in the twin", "updates", "training reward (mean of a decision)", rewards,
              "Less the members' disagreement and with randomised durations: no value of a policy."),
        Chart("Value with the member held out", "updates", "mean reward of a greedy decision", held_out,
              "Every seed keeps the policy of its highest point."),
    ]  # fmt: skip
    return tuple(charts)


def shifted_calibration(archive: Archive, twin: PlacementTwin, plan: ShiftPlan) -> tuple[Chart, ...]:
    """How the training twin's answers hold on the first test days that the log has."""
    tests = [shift for shift in plan.shifts if shift.days]
    if not tests:
        return ()
    windows = encode_days(archive, twin.encoding, tests[0].days, num_steps=128)
    offers, tested = labelled_offers(windows, twin.encoding), f"Test days of shift {tests[0].name}"
    return calibration_charts(twin.model, twin.config, twin.encoding, offers, tested)


def quarantine_of(archive: Archive) -> tuple[Rejected, ...]:
    """What did not get into an archive."""
    return tuple(
        Rejected(table, rule, count)
        for table in archive.tables
        for rule, count in sorted(archive.quarantined(table).items())
    )


def capabilities_of(archive: Archive) -> tuple[CapabilityRow, ...]:
    """What an archive supports; it is read once."""
    return tuple(
        CapabilityRow(line.name, _SUPPORT[line.answer], line.fraction, line.reason)
        for line in check.capabilities_of(archive)
    )


def make_report(
    title: str,
    comparison: Comparison,
    archive_path: Path,
    twin: PlacementTwin,
    schedulers: Schedulers | None,
    plan: ShiftPlan,
    config: RunConfig,
    hashes: dict[str, str],
    made: Mapping[str, Manifest],
) -> Report:
    """Everything the page shows; `made`: manifests of the twin and, where there is one, the policy."""
    archive = Archive(archive_path)
    of_policy = (
        (made["policy"].extra["seeds"], made["policy"].config["clone_updates"]) if "policy" in made else ()
    )
    return Report(
        title=title,
        comparison=comparison,
        fit=fit_facts(twin),
        calibration=shifted_calibration(archive, twin, plan),
        learning=learning_charts(twin.report, schedulers, twin.config.evaluate_every, *of_policy),
        capabilities=capabilities_of(archive),
        quarantine=quarantine_of(archive),
        configuration=settings_as_made(config, made),
        hashes=hashes,
        seeds=seeds_as_made(config, made),
        limits=limits_of(comparison, made),
    )


def settings_as_made(config: RunConfig, made: Mapping[str, Manifest]) -> dict[str, Any]:
    """The settings of a comparison, with those that the twin and the policy were made with: single commands may have
    been given others."""
    settings: dict[str, Any] = to_plain(
        {name: value for name, value in asdict(config).items() if name != "engine"}
    )
    fitted = made["twin"].config
    settings |= {name: fitted[name] for name in OF_TWIN if name in fitted}
    return settings | ({"train": made["policy"].config} if "policy" in made else {})


def seeds_as_made(config: RunConfig, made: Mapping[str, Manifest]) -> dict[str, int]:
    """The seeds that the twin, the policies and the judges were given."""
    names = {"twin": "twin", "policies": "policy"}
    seeds = {words: made[name].seed for words, name in names.items() if name in made}
    return {words: seed for words, seed in seeds.items() if seed is not None} | {"judges": config.judge.seed}


def limits_of(comparison: Comparison, made: Mapping[str, Manifest]) -> tuple[str, ...]:
    """What the numbers of a page cannot say; `made` as of `make_report`."""
    limits = []
    if without := made["twin"].extra.get(NO_CHOICE):
        limits.append(f"This log leaves a scheduler no choice of node: {without}. So nothing was trained.")
    if bound := made["twin"].extra.get(OWN_NODES):
        limits.append(as_sentence(bound))
    if not any(judge.name == "truth" for judge in comparison.judges):
        limits.append(
            "No judge here is the real system. A policy that looks better in replay and in the twin of shifted days is "
            "a candidate for shadow mode, not a proof."
        )
    return tuple(limits)


def limits_of_training(policy: Path) -> list[str]:
    """What limits the policies of a page: the twin that they were trained in, and what the ladder went by."""
    trained = read_manifest(policy, "policy").extra
    return [
        training_in_words(policy),
        *([f"The ladder chose {trained['ladder']}."] if "ladder" in trained else []),
    ]


def warnings_of_training(policy: Path) -> list[str]:
    """What a page says of its policies first: no passed certificate, or nothing that is surely better than the log."""
    found = []
    if not in_certified_twin(policy):
        found.append(f"{training_in_words(policy)} A bundle of them is for shadow mode at most.")
    if beside := read_manifest(policy, "policy").extra.get(BESIDE_LOG):
        found.append(f"The ladder's choice: {beside}.")
    return found
