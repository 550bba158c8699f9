"""How far the learned edges may be believed, and how policies stand to each other on later days."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import about_zero
from evaluation.comparison.bootstrap import IntervalConfig, Statistic
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.decisions import concatenate, plain_decisions
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.metrics import MEAN_RESPONSE
from evaluation.comparison.products import archive_facts
from evaluation.comparison.shifts import ShiftPlan
from logs_schema import Archive
from twin.contracts import Policy

from .edges import Batches, cores_of, fit_edges, names_of, read_batches, response_of, true_edges
from .learning import choices
from .problem import BatchEdges, expected_s

Choose = Callable[[Batches], np.ndarray]
ABOUT = {
    "answers": "Response times on held-out days, over what the twin expects of the same batch on the same edge."
}
COMPARED = ("history", "best")
"""Policies of every comparison: the log's own decisions, and where the truth is known the best ones."""
JUDGES = {
    "twin of shifted days": "edges learned from the judged days themselves, which no policy has seen",
    "truth": "the edges as they are",
}


def certify(
    edges: BatchEdges,
    archive: Archive,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date],
    config: CertifyConfig,
    twin_hash: str,
) -> Certificate:
    """Holds learned edges against held-out days: each edge's mean response, and the spread of all."""
    batches, names = read_batches(archive, days), names_of(archive)
    ratio = batches.response_s / response_of(edges, batches.size_mib, batches.edge)
    limits, num_days = config.thresholds, len(np.unique(batches.day))
    lines = [
        about_zero(
            "answers",
            f"mean response on {name}, off by",
            "share",
            _mean(batches.day, ratio - 1.0, batches.edge == edge),
            num_days,
            limits.run_bias_by_node,
            config.intervals(),
            deciding=True,
        )
        for edge, name in enumerate(names)
    ]
    within = np.abs(np.log(ratio) + 0.5 * float(edges.spread) ** 2) < 1.645 * float(edges.spread)
    covered = _mean(batches.day, within - 0.9, np.ones(len(within), bool))
    lines.append(
        about_zero("answers", "coverage of 90 % intervals, off by", "share", covered, num_days, limits.coverage,
                   config.intervals(), deciding=True)
    )  # fmt: skip
    return certificate_of(
        lines, ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash, train_days=train_days, days=days,
        num_requests=len(ratio),
    )  # fmt: skip


def judge(
    archive: Archive, plan: ShiftPlan, policies: Mapping[str, Sequence[Policy]], intervals: IntervalConfig
) -> Comparison:
    """Compares policies on the days of every shift, each with its seeds; the log's own decisions beside them."""
    truth, cores = true_edges(archive), cores_of(archive)
    runs = []
    for shift in plan.shifts:
        if not shift.days:
            continue
        batches = read_batches(archive, shift.days)
        judges = {"twin of shifted days": fit_edges(batches, cores)} | (
            {} if truth is None else {"truth": truth}
        )
        chosen = {
            name: [choices(one, cores, batches.size_mib) for one in own] for name, own in policies.items()
        }
        chosen |= {"history": [batches.edge]}
        if truth is not None:
            chosen |= {
                "best": [np.asarray(jnp.argmin(expected_s(truth, jnp.asarray(batches.size_mib)), axis=0))]
            }
        for judge_name, edges in judges.items():
            runs += [
                _run(judge_name, shift.shift_days, name, batches, edges, own) for name, own in chosen.items()
            ]
    names = dict.fromkeys(run.policy for run in runs)
    return compare(
        runs, archive=archive_facts(archive), train_days=[day.isoformat() for day in plan.train_days],
        unit_kind="days", policies=[PolicyFacts(name, "policy", name) for name in names],
        judges=[JudgeFacts(name, JUDGES[name]) for name in dict.fromkeys(run.judge for run in runs)],
        shifts=[ShiftFacts(one.shift_days, tuple(d.isoformat() for d in one.days), one.num_requests, one.note)
                for one in plan.shifts],
        metrics=(MEAN_RESPONSE,), references=("history",), config=intervals,
    )  # fmt: skip


def _run(
    judge_name: str,
    shift_days: int,
    policy: str,
    batches: Batches,
    edges: BatchEdges,
    chosen: Sequence[np.ndarray],
) -> Run:
    by_seed = []
    for edge in chosen:
        finish_s = batches.arrival_s + response_of(edges, batches.size_mib, edge)
        by_seed.append(plain_decisions(batches.day, batches.day, edge, batches.arrival_s, finish_s))
    agreement = float(np.mean([np.mean(edge == batches.edge) for edge in chosen]))
    return Run(judge_name, shift_days, policy, concatenate(by_seed), agreement, by_seed=tuple(by_seed))


def _mean(day: np.ndarray, value: np.ndarray, where: np.ndarray) -> Statistic:
    """The mean of some rows as a function of the days' weights."""
    unit = np.unique(day, return_inverse=True)[1]
    above, below = (np.bincount(unit, part) for part in (np.where(where, value, 0.0), where.astype(float)))

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return (weights @ above) / (weights @ below)

    return statistic
