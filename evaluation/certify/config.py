"""Configuration of certificates: sample sizes and thresholds."""

from dataclasses import dataclass, field

from evaluation.comparison.bootstrap import IntervalConfig
from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_wrong_types


@dataclass(frozen=True)
class Thresholds:
    """The largest accepted values; "over the floor" is relative to the distance between two real days.

    Attributes:
        column_kl: KL of a column, nats over the floor.
        pair_kl: Mean KL of the pairs of columns, nats over the floor.
        auc: Area under the curve of the classifier, over the floor.
        mmd: Squared kernel distance, over the floor.
        kolmogorov_smirnov: Distance of distribution functions, over the floor.
        wasserstein: Earth mover's distance in deviations, over the floor.
        arrivals: Relative error of an arrival statistic, over the floor.
        offload_error: Mean absolute error of the offload ratio over the parts of the day, over the floor.
        offload_correlation: Least correlation with the logged ratio over the parts of the day.
        calibration: Mean distance of predicted from observed shares.
        coverage: Most that 90 % intervals may fall short of 90 %.
        clone_surprise: Largest difference of the clone's surprise at logged decisions from its own entropy, nats.
        behaviour_value: Largest difference in closed loop of the share on time and of the share accepted: .02 for the
            twin, .01 for the clone, whose distribution is flatter than the behaviour's (the truth itself is .01 off).
        behaviour_response: The same for the mean log of response time over expected run, where there are no deadlines.
        acceptance_bias: Largest mean difference of answers from their forecast probability.
        acceptance_bias_by_node: The same on single nodes (root mean square).
        on_time_bias: Largest mean difference of the share on time from its forecast probability.
        wait_bias: Largest log of the mean wait over its mean forecast.
        run_bias_by_node: Largest bias of log run times on single nodes (root mean square).
        persistence: Largest correlation of run time residuals with those of the last runs on the node, or on any.
        co_running: Largest correlation of run time residuals with requests that arrive during the run. It is small,
            since sharing has an effect only while a node has more requests than cores.
        cold_start: The same with the time since the service last ran on the node.
        elsewhere: The same with what the load of other nodes says of them.
        reaction: Largest correlation of acceptance residuals with how the agent's last requests were served.
        repeats: Largest share of the requests that repeat failed ones, or are cancelled as a copy of them completes.
        awaited: Largest share of the requests that await the end of their agent's last one, beyond what is modelled.
        redirected: Largest share of the requests that ran elsewhere than they were offered to.
        horizon: State distance in deviations, over the floor.
        rank_correlation: Least Spearman correlation of policies' values with the truth.
        value_error: Mean absolute error of policies' values against the truth.
        utilisation: Of a queue: mean absolute error of the utilisation, over the floor.
        order_rank_correlation: Of a queue: least Spearman correlation of the rules' slowdowns with those of replay.
        order_value_error: Of a queue: mean absolute error of the rules' log mean bounded slowdowns, over the floor.
    """

    column_kl: float = 0.01
    pair_kl: float = 0.01
    auc: float = 0.10
    mmd: float = 0.01
    kolmogorov_smirnov: float = 0.05
    wasserstein: float = 0.10
    arrivals: float = 0.10
    offload_error: float = 0.005
    offload_correlation: float = 0.95
    calibration: float = 0.05
    coverage: float = 0.05
    clone_surprise: float = 0.05
    behaviour_value: float = 0.03
    behaviour_response: float = 0.05
    acceptance_bias: float = 0.03
    acceptance_bias_by_node: float = 0.05
    on_time_bias: float = 0.03
    wait_bias: float = 0.15
    run_bias_by_node: float = 0.10
    persistence: float = 0.10
    co_running: float = 0.05
    cold_start: float = 0.05
    elsewhere: float = 0.10
    reaction: float = 0.05
    repeats: float = 0.03
    awaited: float = 0.05
    redirected: float = 0.05
    horizon: float = 0.10
    rank_correlation: float = 0.97
    value_error: float = 0.02
    utilisation: float = 0.05
    order_rank_correlation: float = 0.9
    order_value_error: float = 0.10


@dataclass(frozen=True)
class CertifyConfig:
    """Size and thresholds of a certificate.

    Attributes:
        max_days: Held-out days where none are named: the first ones after training, and further ones up to
            `enough_rows`.
        enough_rows: Number of requests up to which further held-out days are added, four weeks at most: with fewer, the
            levels of the log are not known to the hundredths that the thresholds need. Of a day of very many requests
            some are looked at, spread evenly, and of many nodes or requests in flight fewer
            (`twin.placement.log_windows.looked_at`).
        max_weeks: Held-out weeks of a queue where no days are named: the first ones after training.
        num_copies: Generated weeks of a queue for each held-out week, in which the rules are simulated.
        max_played: Jobs of a queue that every rule is simulated on, over all weeks; above it, weeks are sampled.
        num_steps: Decisions that the twin simulates before its state is reset to the log's.
        min_rows: Smallest number of decided requests of a certificate.
        max_rows: Largest number of rows for the classifier and the kernel distance.
        clone_updates: Gradient steps of the clone of the closed loop, at most.
        rankings: Whether fixed policies are ranked, where the truth is available; of a queue, whether all rules are.
        level: Coverage of the intervals.
        num_replicates: Bootstrap replicates of an interval.
        seed: Seed of all random draws.
        thresholds: The thresholds of the lines.
    """

    max_days: int = 3
    enough_rows: int = 20_000
    max_weeks: int = 8
    num_copies: int = 4
    max_played: int = 100_000
    num_steps: int = 512
    min_rows: int = 200
    max_rows: int = 3000
    clone_updates: int = 600
    rankings: bool = True
    level: float = 0.95
    num_replicates: int = 400
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        refuse_wrong_types(self, "[certify]")
        if self.max_days < 1 or self.num_steps < 8 or self.min_rows < 50 or self.max_rows < 200:
            raise ConfigError(
                "the certificate is misconfigured",
                where=f"max_days={self.max_days}, num_steps={self.num_steps}, min_rows={self.min_rows}, "
                f"max_rows={self.max_rows}",
                allowed="max_days >= 1, num_steps >= 8, min_rows >= 50, max_rows >= 200",
            )
        if min(self.max_weeks, self.num_copies, self.max_played) < 1:
            raise ConfigError(
                "the certificate is misconfigured",
                where=f"max_weeks={self.max_weeks}, num_copies={self.num_copies}, max_played={self.max_played}",
                allowed="1 or more each",
            )
        self.intervals()

    def intervals(self) -> IntervalConfig:
        """How the intervals are drawn."""
        return IntervalConfig(self.num_replicates, self.level, seed=self.seed)
