"""The user's own policies on a queue: a function of the type `twin.contracts.Policy`, a rule, a bundle, or a training.

Rules and bundles are simulated by exact replay of the whole queue. A function or a network decides about the first
waiting jobs in the bookkeeping of the problem, with EASY backfilling, like learned orders. One that raises, returns
another shape or makes an illegal choice is refused by name, and the others are evaluated.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.descriptions import USERS
from evaluation.judges.host_policy import HostPolicy, form_of
from evaluation.judges.named import RAISED
from evaluation.judges.user_policies import EnteredPolicies, Takes, UserPolicy, enter, raised, tried, words_of
from evaluation.problems.ordering.exporting import policy_of_bundle
from evaluation.problems.ordering.learned_orders import look_up, starts_of_weeks, windows_of
from evaluation.problems.ordering.playing import OrderPolicy, Play, rule_policy
from evaluation.problems.ordering.weeks import TestWeek
from logs_schema.errors import ConfigError
from offline_rl.ordering.programs import OrderTrainingConfig, example_in_windows, policy_program
from twin.contracts import Policy
from twin.ordering.rules import Rule, Waiting
from twin.ordering.types import Pool

SIGNATURE = (
    "a function (key, observation, legal) -> action: observation.job [features, places, seats, *streams], "
    "observation.pool [features, seats, *streams], legal [places, seats, *streams] bool, action [seats, *streams] of "
    "whole numbers; a twin.ordering.rules.Rule; or the folder of a bundle"
)


class UserOrders(NamedTuple):
    """The user's policies as a comparison judges them.

    Attributes:
        policies: Those that can be played.
        entered: Those that are left out, too.
        num_late: Jobs that found the queue full and waited outside.
    """

    policies: list[OrderPolicy]
    entered: EnteredPolicies[tuple[OrderPolicy, int]]
    num_late: int


def user_orders(
    policies: Mapping[str, UserPolicy],
    weeks: Sequence[TestWeek],
    pool: Pool,
    config: OrderTrainingConfig,
    taken: Sequence[str],
) -> UserOrders:
    """Plays the user's policies through all weeks.

    Args:
        policies: Name -> policy.
        weeks: All that will be judged.
        pool: The processors.
        config: Sizes of the bookkeeping that functions are played in.
        taken: Names that stand for other policies.

    Raises:
        ConfigError: A name is taken.
    """

    def functions(name: str, each: Sequence[Policy], words: str) -> tuple[OrderPolicy, int]:
        plays, num_late = zip(*(_played(name, one, weeks, pool, config) for one in each), strict=True)
        return OrderPolicy(name, USERS, words, plays), sum(num_late)

    takes = Takes(
        SIGNATURE,
        function=lambda name, one: functions(name, [one], words_of(one)),
        bundle=lambda name, folder: (_of_bundle(name, folder, pool), 0),
        trained=lambda name, one: functions(name, [one.policy(seed) for seed in one.seeds], words_of(one)),
        rule=lambda name, rule: (_of_rule(name, rule, weeks, pool), 0),
    )
    entered = enter(policies, taken, takes)
    orders = [order._replace(name=name, kind=USERS) for name, (order, _) in entered.ready.items()]
    return UserOrders(orders, entered, sum(num_late for _, num_late in entered.ready.values()))


def _of_rule(name: str, rule: Rule, weeks: Sequence[TestWeek], pool: Pool) -> OrderPolicy:
    """The rule as a policy that has played these weeks, so that one that fails is known before others are judged."""

    def score(waiting: Waiting, now_s: float) -> np.ndarray:
        try:
            found = np.asarray(rule.score(waiting, now_s))
        except RAISED as error:  # of a function of the user's: anything
            raise raised(name, error, "in play", SIGNATURE) from error
        wanted = waiting.arrival_s.shape
        if found.shape != wanted or found.dtype.kind not in "iuf":
            raise ConfigError(
                f"policy {name!r} scores {form_of(found)} where a number for each of {wanted[0]} jobs is required",
                where="in play",
                allowed=SIGNATURE,
            )
        if np.isnan(found).any():
            raise ConfigError(f"policy {name!r} has no score (NaN) for a waiting job", where="in play")
        return found

    order = rule_policy(rule._replace(score=score), Pool(pool.processors, easy=True))
    starts = order.plays[0](weeks)
    done = {week.label: start_s for week, start_s in zip(weeks, starts, strict=True)}
    return order._replace(plays=(partial(look_up, done),))


def _of_bundle(name: str, bundle: Path, pool: Pool) -> OrderPolicy:
    found, own = policy_of_bundle(bundle)
    if own.processors != pool.processors:
        raise ConfigError(
            f"policy {name!r} is of another pool",
            where=f"{bundle}: {own.processors:g} processors",
            allowed=f"a bundle of {pool.processors:g} processors",
        )
    return found


def _played(
    name: str, policy: Policy, weeks: Sequence[TestWeek], pool: Pool, config: OrderTrainingConfig
) -> tuple[Play, int]:
    """The policy's starts in these weeks, by their labels, and how many jobs found the queue full."""
    windows = windows_of(weeks, pool, config)
    ready = tried(name, policy, example_in_windows(pool, windows, config), SIGNATURE)
    program = policy_program(pool, config, ready)
    done = program(jax.random.key(0), jax.tree.map(jnp.asarray, windows))
    start_s, late, num_illegal = (np.asarray(leaf) for leaf in done)
    if isinstance(ready, HostPolicy) and ready.error is not None:
        raise raised(name, ready.error, "in play", SIGNATURE)
    if int(num_illegal):
        raise ConfigError(
            f"policy {name!r} chose a place without a job in {int(num_illegal):,} decisions",
            allowed="places where `legal` is true",
            advice="mask the choice",
        )
    starts = starts_of_weeks(start_s, weeks, pool, config)
    return partial(look_up, {week.label: one for week, one in zip(weeks, starts, strict=True)}), int(late)
