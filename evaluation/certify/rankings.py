"""Rank correlation of fixed policies' values in the twin with those in the truth, for simulated logs.

Published rules, rules from the log, and networks with random parameters, unlike any logged policy: in the twin on the
held-out day's arrivals, and in the simulated world on a new simulation of that day. The twin simulates the day in one
piece: with repeated resets to logged states, a policy that accumulates work would not be penalised. All policies and
replications of the day advance side by side, as one program.
"""

from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from evaluation.baselines import BASELINES
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_limit, not_applicable
from evaluation.certify.logged_days import HeldOutDay
from evaluation.comparison.bootstrap import Statistic, blocks_of, mean_over_units
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.entries import is_far
from evaluation.comparison.metrics import Metric, main_metric
from evaluation.comparison.rank_correlation import rank_correlation
from evaluation.comparison.report import Chart, Curve
from evaluation.comparison.shifts import TestDays
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import Candidate, common_shape, twin_judge, twin_program
from evaluation.judges.players import GREEDY, players_of
from evaluation.judges.truth import truth_judge, truth_program, workload_beside
from logs_schema import Archive
from offline_rl.networks import actor
from offline_rl.recipes.schedulers import example_for
from offline_rl.rules.in_twin import rule_policy, rules_of
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin

SECTION = "values of fixed policies"
LINES = (
    "rank correlation with the truth",
    "mean absolute error against the truth",
    "the same, of policies it need not guess",
)
NUM_POLICIES = 12
"""At least so many policies are ranked: rules first, then networks with random parameters."""
TRUE_REQUESTS = 80_000
"""Requests up to which a day of the truth is replicated, from 4 to 16 times; more would not make a value more exact."""


def ranking_lines(
    archive: Archive, twin: PlacementTwin, held_out: Callable[[], HeldOutDay], config: CertifyConfig
) -> tuple[list[Line], tuple[Chart, ...]]:
    """Agreement of the twin's and the truth's values of fixed policies on one held-out day, loaded on demand."""
    reason = None
    if "ground_truth" not in archive.facts:
        reason = "the truth behind this log is not available"
    elif not config.rankings:
        reason = "switched off (rankings = false)"
    elif twin.encoding.cluster.num_nodes < 2:
        reason = "one node only: all policies decide the same"
    if reason is not None:
        return [not_applicable(SECTION, name, reason) for name in LINES], ()
    day = held_out()
    names, in_twin, true, far, halves = policy_values(archive, twin, day, seed=config.seed)
    limit, error = config.thresholds.value_error, np.abs(in_twin - true)
    lines = [
        against_limit(SECTION, LINES[0], "1", weighted_spearman(in_twin, true), len(names),
                      config.thresholds.rank_correlation, config.intervals(), higher_is_better=True,
                      floor=weighted_spearman(*halves)),
        against_limit(SECTION, LINES[1], "share on time", mean_over_units(error), len(names), limit,
                      config.intervals()),
    ]  # fmt: skip
    if far.all():
        lines.append(not_applicable(SECTION, LINES[2], "it had to guess at every policy"))
    else:
        near = error[~far]
        lines.append(
            against_limit(
                SECTION,
                LINES[2],
                "share on time",
                mean_over_units(near),
                len(near),
                limit,
                config.intervals(),
            )
        )
    guessed = ", ".join(name for name, is_guess in zip(names, far, strict=True) if is_guess) or "none"
    order = np.argsort(true, kind="stable")
    worst = int(np.argmax(error))
    chart = Chart(
        "Values of fixed policies",
        "value in the truth",
        "value in the twin",
        (Curve("policies", tuple(map(float, true[order])), tuple(map(float, in_twin[order]))),),
        f"{len(names)} policies on {day.day}. The twin's largest error is that of {names[worst]}: {in_twin[worst]:.3f} "
        f"against {true[worst]:.3f}. Its value is a guess, because queues were longer than those in the log, for: "
        f"{guessed}.",
        True,
    )
    return lines, (chart,)


def policy_values(
    archive: Archive, twin: PlacementTwin, day: HeldOutDay, *, seed: int
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Policies by name: values in the twin and in the truth, whether the twin's is an extrapolation, [policies]; and
    the true ones in two halves of the simulated days, [2, policies]: those that are alike rank differently there, too.
    """
    encoding = twin.encoding
    num_steps = archive.num_rows("requests", day.day)
    windows = encode_days(archive, encoding, [day.day], num_steps=num_steps, most=None)
    network = actor(example_for(encoding, windows))
    rules = {name: rule_policy(params) for name, params in rules_of(twin).items()}
    candidates = _policies(twin, rules, network.init, seed)
    kinds = players_of(encoding.cluster, network, BASELINES, rules)
    players = {candidate.name: kinds[candidate.kind] for candidate in candidates}
    in_twin_program = twin_program(encoding, twin.config, players, side_by_side=True)
    judge = twin_judge(
        in_twin_program,
        encoding,
        windows,
        twin.model,
        common_shape([windows]),
        copies=twin.config.num_members,
    )
    workload = workload_beside(archive)
    num_days = int(np.clip(TRUE_REQUESTS // num_steps, 4, JudgeConfig.num_true_days))
    program = truth_program(archive.facts, encoding, players, workload, num_days, side_by_side=True)
    truth = truth_judge(program, archive.facts, encoding, TestDays(0, (day.day,), None), workload)
    metric = main_metric(encoding.problem.reward)
    keys = jax.random.split(jax.random.key(seed))
    simulated = [one.evaluate(key, candidates) for one, key in zip((judge, truth), keys, strict=True)]
    in_twin, true = (
        np.array([float(metric.compute(result.decisions)) for result in results])  # type: ignore[arg-type]
        for results in simulated
    )
    far = np.array([is_far(result.out_of_support) for result in simulated[0]])
    halves = np.stack([_in_halves(metric, result.decisions) for result in simulated[1]], axis=1)
    return [candidate.name for candidate in candidates], in_twin, true, far, halves


def _in_halves(metric: Metric, decisions: Decisions) -> np.ndarray:
    """[2] the metric on every second unit, and on the others."""
    even = blocks_of(decisions.unit).labels % 2 == 0
    return np.asarray(metric.statistic(decisions)(np.stack([even, ~even]).astype(float)))


def weighted_spearman(one: np.ndarray, two: np.ndarray) -> Statistic:
    """Rank correlation of two columns, every row counted as often as its weight (whole numbers)."""

    def of(weights: np.ndarray) -> float:
        rows = np.repeat(np.arange(len(one)), weights.astype(int))
        return rank_correlation(two[rows], one[rows])

    return lambda weights: np.array([of(row) for row in weights])


def _policies(twin: PlacementTwin, learned: Iterable[str], init: object, seed: int) -> Sequence[Candidate]:
    keys = jax.random.split(jax.random.key(seed), NUM_POLICIES)
    params = [init(key) for key in keys]  # type: ignore[operator]
    rules = [
        Candidate(rule.name, rule.name, params[0])
        for rule in BASELINES
        if rule.applies(twin.encoding.cluster)
    ]
    rules += [Candidate(name, name, params[0]) for name in learned]
    num_networks = max(4, NUM_POLICIES - len(rules))
    networks = [
        Candidate(f"random network {index + 1}", GREEDY, params[index]) for index in range(num_networks)
    ]
    return [*rules, *networks]
