"""The inputs of a placement comparison, and its policies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import jax

from evaluation.baselines import Baseline
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.entries import PolicyFacts
from evaluation.comparison.metrics import Metric, main_metric
from evaluation.comparison.shifts import ShiftPlan, TestDays
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.config import JudgeConfig
from evaluation.judges.descriptions import LADDER, POLICIES, SHIFTED_TWIN, TWIN_POLICY
from evaluation.judges.judge import Candidate
from evaluation.judges.players import GREEDY, HISTORY, SAMPLED
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.shifted import ShiftedTwins
from logs_schema import Archive
from logs_schema.background import Background
from logs_schema.errors import ConfigError
from offline_rl.recipes.config import even_streams
from offline_rl.recipes.schedulers import Schedulers, example_for, policy_of, policy_params
from offline_rl.rules.in_twin import rules_of
from offline_rl.rules.size_intervals import SIZE_INTERVALS, size_intervals_of
from twin.contracts import Policy
from twin.placement.model import PlacementTwin
from twin.placement.types import Cluster


@dataclass(frozen=True)
class Case:
    """The inputs of a comparison; `keep` holds finished evaluations."""

    archive: Archive
    twin: PlacementTwin
    schedulers: Schedulers | None
    plan: ShiftPlan
    config: JudgeConfig
    intervals: IntervalConfig
    policies: Mapping[str, UserPolicy] = field(default_factory=dict)
    """The user's, by name."""
    judges: Mapping[str, UserJudge] = field(default_factory=dict)
    """The user's, by name; asked last, in this process."""
    keep: Unfinished = field(default_factory=Unfinished)
    only: tuple[str, int] | None = None
    """Judge and shift (days) of a task that evaluates only these; None: all."""
    shifted: Background[ShiftedTwins] | None = None
    """Twins of shifted days by shift, begun before (`shifted.fit_beside`); those not among them are fitted here."""

    @property
    def main(self) -> Metric:
        """The metric that corresponds to the twin's reward."""
        return main_metric(self.twin.encoding.problem.reward)

    def wants(self, judge: str, shift: TestDays) -> bool:
        """Whether a judge is to evaluate a shift."""
        if judge == SHIFTED_TWIN and not self.config.num_fit_steps:
            return False
        return self.only is None or self.only == (judge, shift.shift_days)

    @property
    def described(self) -> list[PolicyFacts]:
        """The comparison's own policies; that of the ladder says which it is."""
        which = "" if self.schedulers is None or not self.schedulers.ladder else self.schedulers.chosen[0]
        return [
            replace(one, description=f"{one.description}; here {which}")
            if which and one.name == LADDER
            else one
            for one in POLICIES
        ]

    @cached_property
    def rules(self) -> Mapping[str, Policy]:
        """The rules from the log by name, and the correction of one: from training, else estimated from the log; and
        size intervals, which are no candidate for export."""
        if self.twin.encoding.cluster.num_nodes < 2:
            return {}
        found = rules_of(self.twin) if self.schedulers is None else self.schedulers.rules
        example = example_for(self.twin.encoding, self.twin.windows)
        encoding, windows = self.twin.encoding, self.twin.disjoint_windows()
        by_size = size_intervals_of(windows, encoding.cluster, encoding.problem.time_unit_s)
        return {name: policy_of(params, example) for name, params in found.items()} | {
            SIZE_INTERVALS: by_size
        }


def candidates_from(
    schedulers: Schedulers | None, cluster: Cluster, baselines: Iterable[Baseline], rules: Iterable[str] = ()
) -> list[Candidate]:
    """The evaluated candidates, `baselines` and `rules` among them, one for each seed of the twin-trained policy;
    without schedulers those that need no training."""
    nothing = None if schedulers is None else schedulers.clone
    if cluster.num_nodes < 2:  # all policies decide the same
        return [Candidate(HISTORY, HISTORY, nothing)]
    names = (*(baseline.name for baseline in baselines if baseline.applies(cluster)), *rules, HISTORY)
    plain = [Candidate(name, name, nothing) for name in names]
    if schedulers is None:
        return plain
    clones = [Candidate("bc", SAMPLED, nothing), Candidate("bc_greedy", GREEDY, nothing)]
    learned = [
        Candidate(name, GREEDY, jax.tree.map(lambda leaf, i=seed: leaf[i], params))
        for name, params in (*schedulers.from_logs.items(), (TWIN_POLICY, schedulers.trained))
        for seed in range(len(jax.tree.leaves(params)[0]))
    ]
    found = [*plain, *clones, *learned]
    if schedulers.ladder:
        name, row = schedulers.chosen
        is_rule = name in schedulers.rules
        params = nothing if is_rule else policy_params(schedulers, name, row)
        found.append(Candidate(LADDER, name if is_rule else GREEDY, params))
    return found


def refuse_uneven(config: RunConfig) -> None:
    """Makes sure that replications and the streams of training can be dealt to the twin's members; ConfigError."""
    refuse_uneven_replications(config.judge, config.twin.num_members)
    even_streams(config.train, config.twin.num_members)


def refuse_uneven_replications(config: JudgeConfig, num_members: int) -> None:
    """Makes sure that a window's replications can be dealt to the twin's members; ConfigError."""
    if config.copies % num_members:
        raise ConfigError(
            f"copies = {config.copies}: {config.copies} replications of a window cannot be dealt to {num_members} "
            "members of the twin, each of which simulates every window equally often",
            where="[judge]",
            allowed=f"multiples of {num_members}",
            advice=f"take copies = {max(round(config.copies / num_members), 1) * num_members}, or as many num_members "
            "in [twin]",
        )
