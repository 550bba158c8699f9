"""How policies are trained in the twin: sizes, guards, and the kinds of networks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_below_one, refuse_below_zero
from offline_rl.algorithms import PPOConfig
from offline_rl.networks import Actor, Example, actor
from offline_rl.recipes.log_learners import LEARNERS
from offline_rl.scorer import ScorerConfig, scorer
from twin.placement.history import fewer_of
from twin.placement.model import PlacementTwin
from twin.placement.randomisation import Randomisation
from twin.placement.windows import Windows, lengthened, without_waiting

NETWORKS: Mapping[str, Callable[[Example], Actor]] = {
    "scorer": scorer,
    "narrow_scorer": partial(scorer, config=ScorerConfig((32, 16))),
    "mlp": actor,
}
"""Kinds of network that all policies of a training share."""


MIN_EPISODES = 8
"""Windows that bounds of gains should at least rest on."""


@dataclass(frozen=True)
class TrainingConfig:
    """How schedulers are trained.

    Attributes:
        seeds: One twin-trained policy, and one of each learner from logs, for each.
        num_updates: PPO updates from the clone, each from a fresh rollout in the twin; 0: no policy starts from it.
        learning_rate, gae_lambda, entropy: Of PPO, see `PPOConfig`.
        num_streams: Parallel rollouts, rounded down to a multiple of PPO's minibatches and of the members trained
            with (`num_held_out_members` of the ensemble are not); of more than 128 nodes fewer, in proportion, and of
            fewer nodes with very many requests in flight on each (`Encoding.num_views`).
        clone_updates: Gradient steps of the clone at most.
        clone_streams: Windows in each of them; of more than 128 nodes fewer.
        held_out: Share of the windows that decide when the clone stops, and that learners from logs are tuned on.
        kl_to_clone: Weight of `KL(policy || clone)`.
        disagreement: Weight of the members' disagreement on a decision's worth, taken from its reward.
        randomise_nodes, randomise_services: Deviations of the logarithms of durations from stream to stream, where
            rules are tuned and networks trained (see `twin.placement.randomisation`).
        updates_per_look: Updates between two evaluations with the members held out.
        network: "scorer" (one small network shared by all nodes), "narrow_scorer" (half as wide) or "mlp".
        from_logs: Learners that need no twin, of `LEARNERS`.
        from_logs_updates: Gradient steps of each of them at most.
        tuning_streams: Windows of the twin whose worth of requests every candidate for a rule's numbers plays in a
            round, rounded down to a multiple of the members trained with, and fewer as above; 0: rules are not tuned.
        episode_requests: Requests of an episode in which rules are tuned, policies looked at and held against each
            other, at most; fewer where the log has no `MIN_EPISODES` of them. Shorter ones end before the queues that
            a policy leads to have replaced those of the log.
        residual_updates: PPO updates of the policy that corrects the best rule, of the first seed alone; 0: none.
        most_response: Most mean response time of what the ladder takes, as a multiple of its first rung's in the twin;
            None: any. On-time rewards let requests wait that are late already.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    num_updates: int = 25
    learning_rate: float = 3e-3
    gae_lambda: float = 0.8
    entropy: float = 0.01
    num_streams: int = 320
    clone_updates: int = 600
    clone_streams: int = 16
    held_out: float = 0.15
    kl_to_clone: float = 0.03
    disagreement: float = 1.0
    randomise_nodes: float = 0.2
    randomise_services: float = 0.1
    updates_per_look: int = 5
    network: str = "scorer"
    from_logs: tuple[str, ...] = ()
    from_logs_updates: int = 1_500
    tuning_streams: int = 72
    episode_requests: int = 1_024
    residual_updates: int = 60
    most_response: float | None = None

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(
                f"seeds = {list(self.seeds)}", where="[train]", allowed="one or more different seeds"
            )
        refuse_below_one(
            "[train]",
            num_streams=self.num_streams,
            clone_updates=self.clone_updates,
            clone_streams=self.clone_streams,
            from_logs_updates=self.from_logs_updates,
            updates_per_look=self.updates_per_look,
            episode_requests=self.episode_requests,
        )
        refuse_below_zero(
            "[train]",
            num_updates=self.num_updates,
            residual_updates=self.residual_updates,
            tuning_streams=self.tuning_streams,
        )
        if not 0.0 < self.learning_rate < math.inf:
            raise ConfigError(
                f"learning_rate = {self.learning_rate:g}", where="[train]", allowed="more than 0"
            )
        if not (0.0 < self.held_out < 1.0 and 0.0 <= self.gae_lambda <= 1.0):
            raise ConfigError(
                f"held_out = {self.held_out:g}, gae_lambda = {self.gae_lambda:g}",
                where="[train]",
                allowed="held_out between 0 and 1, gae_lambda from 0 to 1",
            )
        if not all(
            0.0 <= weight < math.inf for weight in (self.entropy, self.kl_to_clone, self.disagreement)
        ):
            raise ConfigError(
                f"entropy = {self.entropy:g}, kl_to_clone = {self.kl_to_clone:g}, "
                f"disagreement = {self.disagreement:g}",
                where="[train]",
                allowed="weights of 0 or more",
            )
        if self.most_response is not None and not 0.0 < self.most_response < math.inf:
            raise ConfigError(
                f"most_response = {self.most_response:g}",
                where="[train]",
                allowed="more than 0, such as 1.5; or none",
            )
        if self.network not in NETWORKS:
            raise ConfigError(f"network = {self.network!r}", where="[train]", allowed=", ".join(NETWORKS))
        unknown = sorted(set(self.from_logs) - set(LEARNERS))
        if unknown:
            raise ConfigError(
                f"from_logs names {', '.join(unknown)}", where="[train]", allowed=", ".join(LEARNERS)
            )
        self.randomisation  # noqa: B018 refuses impossible deviations

    @property
    def randomisation(self) -> Randomisation:
        """How far durations are randomised from stream to stream."""
        return Randomisation(self.randomise_nodes, self.randomise_services)


def episodes_of(twin: PlacementTwin, config: TrainingConfig) -> Windows:
    """The requests of a twin's log in windows as long as an episode is wanted, or as its log allows; where queues go
    before others, or failed requests come again, begun without what waits (see `without_waiting`)."""
    num_requests = int(twin.disjoint_windows().length.sum())
    shortest = twin.windows.num_steps
    windows = twin.windows if begins_as_logged(twin.windows) else without_waiting(twin.windows)
    return lengthened(windows, max(shortest, min(config.episode_requests, num_requests // MIN_EPISODES)))


def begins_as_logged(windows: Windows) -> bool:
    """Whether episodes of these windows begin with all that waited in the log, so that a policy's worth in them can be
    held beside that of the logged decisions."""
    return windows.driven_out is None and windows.repeats is None


def even_streams(config: TrainingConfig, num_members: int, num_views: int = 1) -> TrainingConfig:
    """The configuration with streams that can be dealt to the members that are trained with; of very many nodes,
    or requests in flight on each (`num_views` of their encoding), with fewer of them (`fewer_of`).

    Raises:
        ConfigError: There are fewer streams than that takes.
    """
    num_trained = num_members - num_held_out_members(num_members)
    each = math.lcm(num_trained, PPOConfig().num_minibatches)
    streams, tuning = config.num_streams // each * each, config.tuning_streams // num_trained * num_trained
    streams = min(streams, max(each, fewer_of(streams, num_views) // each * each))
    tuning = min(tuning, max(num_trained, fewer_of(tuning, num_views) // num_trained * num_trained))
    if not streams or (config.tuning_streams and not tuning):
        raise ConfigError(
            f"num_streams = {config.num_streams}, tuning_streams = {config.tuning_streams} cannot be dealt to the "
            f"{num_trained} members that are trained with",
            where="[train]",
            allowed=f"num_streams of {each} or more, tuning_streams of {num_trained} or more, or 0",
        )
    return replace(config, num_streams=streams, tuning_streams=tuning)


def num_held_out_members(num_members: int) -> int:
    """Members that no policy is trained with: two of an ensemble that leaves as many to train with, else one."""
    return 0 if num_members == 1 else 2 if num_members >= 4 else 1
