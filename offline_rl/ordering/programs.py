"""What trains and plays orders of a queue: sizes, the scorer, and the programs compiled once for all anchors and seeds.

Windows and parameters are arguments, so five anchors with five seeds compile as often as one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_below_one
from offline_rl.algorithms import BehaviourCloningConfig, PPOConfig, behaviour_cloning, ppo
from offline_rl.networks import Actor, Example, example_of
from offline_rl.ordering.index_scorer import SCORER_HIDDEN
from offline_rl.ordering.predicting import TIME_UNIT_S
from offline_rl.scorer import ScorerConfig, scorer
from offline_rl.training_loop import from_logs, updates
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.environment import environment
from twin.ordering.job_windows import JobWindows, replayed_jobs
from twin.ordering.orders import by_area, by_priority
from twin.ordering.play import actions_of, by_order, by_policy, by_scorer, play, play_counted
from twin.ordering.problem import OrderingConfig, ordering
from twin.ordering.responses import queue_response, starts_of
from twin.ordering.types import Pool
from twin.rollout import follow, rollout

SCORER = ScorerConfig(SCORER_HIDDEN, identity=False, pooled=False)
TABLE = "[order.training]"


@dataclass(frozen=True)
class OrderTrainingConfig:
    """How orders are trained.

    Attributes:
        seeds: one index for each.
        index_only: learn indices alone, for many anchors: no clone, no PPO, no generated weeks, no bundle.
        num_ppo_seeds: number of the seeds that PPO starts from.
        num_updates: updates of PPO.
        look_every: updates between two evaluations in the held-out weeks.
        num_streams: parallel rollouts, a multiple of PPO's minibatches.
        num_steps: decisions in each.
        num_episodes: generated months to train in.
        span_days: length of the windows that rollouts begin with, of which a month holds several.
        num_held_out: generated months that decide which parameters are kept.
        clone_updates: gradient steps of the clone of the logged order.
        num_visible: waiting jobs that are observed in training.
        num_judged: waiting jobs that are seen where policies are judged.
        queue_size, running_size: as in `OrderingConfig`; where None the log decides (`tables.with_tables`).
        floor_s: run times below this count as this long in the reward. The bounded slowdown's own 10 s would let a
            few jobs of seconds rule the gradient; the held-out weeks are measured with 10 s.
        tick_s: as in `OrderingConfig`; see `twin.ordering.job_windows.fitting_tick_s`.
        ppo: how to optimise.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    index_only: bool = False
    num_ppo_seeds: int = 1
    num_updates: int = 10
    look_every: int = 10
    num_streams: int = 32
    num_steps: int = 128
    num_episodes: int = 10
    span_days: float = 2.0
    num_held_out: int = 4
    clone_updates: int = 150
    num_visible: int = 48
    num_judged: int = 128
    queue_size: int | None = None
    running_size: int | None = None
    floor_s: float = 30.0
    tick_s: float = 1.0
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            horizon_s=43_200.0, entropy=0.0, kl_to_clone=0.01, critic_hidden=(64, 64)
        )
    )

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(
                f"seeds = {list(self.seeds)}", where=TABLE, allowed="one or more different seeds"
            )
        refuse_below_one(
            TABLE,
            num_updates=self.num_updates,
            look_every=self.look_every,
            num_streams=self.num_streams,
            num_steps=self.num_steps,
            num_episodes=self.num_episodes,
            num_held_out=self.num_held_out,
            clone_updates=self.clone_updates,
        )
        if not self.span_days > 0.0:
            raise ConfigError(f"span_days = {self.span_days:g}", where=TABLE, allowed="more than 0")
        if self.num_updates % self.look_every:
            raise ConfigError(
                f"{self.num_updates} updates with an evaluation every {self.look_every}",
                where=f"{TABLE} num_updates, look_every",
                allowed="a number of updates that look_every divides",
            )


class Programs(NamedTuple):
    """Compiled programs for one pool."""

    network: Actor
    # decisions of the jobs' priorities, one stream a window
    follow_log: Callable[[Array, JobWindows], Trajectory]
    clone: Callable[[Array, Trajectory], tuple[PyTree, Array]]  # -> scorer, agreement [updates]
    begin: Callable[[Array, PyTree], PyTree]  # (key, scorer) -> PPO's state
    # (key, state, scorer to stay near, windows, first update) -> state, info of `look_every` updates
    improve: Callable[[Array, PyTree, PyTree, JobWindows, Array], tuple[PyTree, PyTree]]
    # (key, scorer, windows, whether to sample) -> starts [N, W], how many jobs found the queue full
    finish: Callable[[Array, PyTree, JobWindows, Array], tuple[Array, Array]]


def programs_for(pool: Pool, windows: JobWindows, config: OrderTrainingConfig) -> Programs:
    """The programs of training and judging.

    Args:
        pool: the processors; jobs are backfilled.
        windows: any, for the shapes.
        config: how to train.
    """
    pool = Pool(pool.processors, easy=True)
    settings = problem_config(config)
    system_of = partial(_system, pool, settings)
    example = example_of(system_of(jax.tree.map(jnp.asarray, windows)))
    network = scorer(example, SCORER)
    cloning = behaviour_cloning(example, BehaviourCloningConfig(learning_rate=3e-3), network)
    run_clone, begin_clone = updates(cloning, config.clone_updates), jax.jit(cloning.init)

    @jax.jit
    def follow_log(key: Array, windows: JobWindows) -> Trajectory:
        system = _system(pool, replace(settings, backfill=by_priority), windows)
        streams = (windows.length.shape[0],)
        actions = actions_of(key, system, by_order(system, by_priority), config.num_steps, streams)
        return follow(key, system, actions, streams)

    def clone(key: Array, samples: Trajectory) -> tuple[PyTree, Array]:
        key_init, key_updates = jax.random.split(key)
        experience = from_logs(samples, max(1, min(8, samples.active.shape[-1] // 2)))
        state, info = run_clone(key_updates, begin_clone(key_init), experience, 0)
        return state.actor, info.agreement

    @jax.jit
    def begin(key: Array, clone: PyTree) -> PyTree:
        return ppo(example, config.ppo, clone, network).init(key)

    @jax.jit
    def improve(
        key: Array, state: PyTree, clone: PyTree, windows: JobWindows, first: Array
    ) -> tuple[PyTree, PyTree]:
        system, streams = system_of(windows), (config.num_streams,)
        algorithm = ppo(example, config.ppo, clone, network)

        def one(state: PyTree, update: Array) -> tuple[PyTree, PyTree]:
            key_rollout, key_step = jax.random.split(jax.random.fold_in(key, update))
            episodes = rollout(key_rollout, system, algorithm.policy(state), config.num_steps, streams)
            return algorithm.step(key_step, state, episodes)

        return jax.lax.scan(one, state, first + jnp.arange(config.look_every))

    return Programs(network, follow_log, clone, begin, improve, _finish_program(pool, windows, config))


def _finish_program(
    pool: Pool, windows: JobWindows, config: OrderTrainingConfig
) -> Callable[[Array, PyTree, JobWindows, Array], tuple[Array, Array]]:
    """Whole weeks under a scorer that gets more of the queue: its weights do not depend on the length."""
    settings = judged_config(config)
    network = scorer(example_in_windows(pool, windows, config), SCORER)

    @jax.jit
    def finish(key: Array, params: PyTree, windows: JobWindows, sampled: Array) -> tuple[Array, Array]:
        choose = by_scorer(pool, settings, partial(network.logits, params), sampled)
        last = play(key, _system(pool, settings, windows), choose, (windows.length.shape[0],))
        return starts_of(last, settings), jnp.sum(last.problem.num_late)

    return finish


def policy_program(
    pool: Pool, config: OrderTrainingConfig, policy: Policy
) -> Callable[[Array, JobWindows], tuple[Array, Array, Array]]:
    """Whole weeks under any policy: (key, windows) -> starts [N, W], how many jobs found the queue full, how many
    choices were not legal."""
    pool, settings = Pool(pool.processors, easy=True), judged_config(config)

    @jax.jit
    def finish(key: Array, windows: JobWindows) -> tuple[Array, Array, Array]:
        system = _system(pool, settings, windows)
        last, num_illegal = play_counted(key, system, by_policy(system, policy), (windows.length.shape[0],))
        return starts_of(last, settings), jnp.sum(last.problem.num_late), num_illegal

    return finish


def example_in_windows(pool: Pool, windows: JobWindows, config: OrderTrainingConfig) -> Example:
    """Shapes of what policies see where they are judged."""
    return example_of(_system(pool, judged_config(config), jax.tree.map(jnp.asarray, windows)))


def _system(pool: Pool, settings: OrderingConfig, windows: JobWindows) -> Environment:
    return environment(ordering(pool, settings), queue_response(pool, settings, replayed_jobs(windows)))


def judged_config(config: OrderTrainingConfig) -> OrderingConfig:
    """The ordering problem as policies are judged in it, and as bundles see it: more of the queue than in training."""
    return problem_config(replace(config, num_visible=config.num_judged))


def problem_config(config: OrderTrainingConfig) -> OrderingConfig:
    """The ordering problem as trained and judged; durations in minutes, so that short jobs can be distinguished."""
    usual = OrderingConfig()
    return OrderingConfig(
        num_visible=config.num_visible,
        queue_size=config.queue_size or usual.queue_size,
        running_size=config.running_size or usual.running_size,
        backfill=by_area,
        slowdown_floor_s=config.floor_s,
        tick_s=config.tick_s,
        time_unit_s=TIME_UNIT_S,
    )
