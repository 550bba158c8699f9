"""The contract of an ordering policy: which waiting job starts next on a pool."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from offline_rl.contract import NOT_STATED, FeatureFacts, NetworkFacts, PolicyContract
from offline_rl.runner.queue import EVERY_JOB
from offline_rl.runner.queue_rules import BY_PREDICTED_RUN, BY_WEIGHTED, NUMBERS, WEIGHTED
from twin.ordering.config import OrderingConfig
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.predicted import CORRECTIONS_S, LEAST_AGEING, PredictedOrder
from twin.ordering.types import Pool
from twin.placement.features import Feature

_SETTING = (
    "num_visible",
    "queue_size",
    "running_size",
    "num_agents",
    "tick_s",
    "time_unit_s",
    "slowdown_floor_s",
    "cost",
)
LEGALITY = "The visible places that hold a waiting job; places are in the order of arrival."
ACTION = (
    "index of the place whose job is next: it starts if it fits, else the pool is kept for it until it does, "
    "and with EASY the jobs behind it may fill the gap meanwhile"
)
EVERY_LEGAL = "Every waiting job, however many there are; places are in the order of arrival."
UNKNOWN = {"user": "a user without finished jobs is taken as one whose jobs run as long as asked for"}
BEYOND = {"jobs beyond the visible places": "counted in the pool's features, not to be chosen yet"}


RULE_FEATURE = Feature("rule_place", "share", "place in the rule's order, of the visible places")
RULE_ORIGIN = (
    "arrivals count from rule_origin_s, in seconds since 1970; a formula that holds them drifts with time"
)


def weighted_setting(order: PredictedOrder) -> dict[str, Any]:
    """What a contract's setting holds of an order under predicted run times, for `offline_rl.runner.queue_rules`."""
    ageing = max(order.ageing, LEAST_AGEING)
    return {
        "rule": WEIGHTED,
        "numbers": dict(zip(NUMBERS, (order.run_weight, order.width_weight, ageing), strict=True)),
        "predicts": order.predicts,
        "reserves": order.reserves,
        "corrections_s": list(CORRECTIONS_S),
        "backfill": BY_PREDICTED_RUN if order.short_first else BY_WEIGHTED,
    }


def rule_contract(
    pool: Pool,
    config: OrderingConfig,
    network: NetworkFacts,
    rule: Mapping[str, Any],
    origin_s: float,
    **facts: Any,
) -> PolicyContract:
    """The contract of a rule, as a policy that takes the first of its order.

    Args:
        pool, config, network: As in `ordering_contract`.
        rule: `rule` and `backfill` of the setting, as `offline_rl.runner.queue_rules` names them, and what the rule
            needs besides (`weighted_setting`).
        origin_s: Seconds since 1970 from which arrivals count, for rules with arrivals in their formula.
        **facts: The other arguments of `ordering_contract`.
    """
    contract = ordering_contract(pool, config, network, every_job=True, **facts)
    return replace(
        contract,
        choice_features=_facts((RULE_FEATURE,), {RULE_FEATURE.name: (0.0, 1.0)}),
        unknown=contract.unknown | {"beginning of time": RULE_ORIGIN},
        setting=contract.setting | {"rule_origin_s": origin_s} | dict(rule),
    )


def ordering_contract(
    pool: Pool,
    config: OrderingConfig,
    network: NetworkFacts,
    *,
    every_job: bool = False,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    trained_on: Mapping[str, Any] | None = None,
    certificate: str | None = None,
    licence: str | None = None,
) -> PolicyContract:
    """What callers of an ordering policy must know; it decides from arrays (`offline_rl.runner.load_network`).

    Args:
        pool: The machine it orders jobs for.
        config: What its features are computed with.
        network: What it is; a scorer without identity takes any number of places.
        every_job: Whether it scores each job by itself, as a rule or an index does: all that wait are chosen among. Of
            others the first `num_visible` are, which is how they were trained.
        ranges: Feature -> least and largest value on the training days.
        trained_on: The data window.
        certificate: Content hash of the certificate of the twin it was trained in.
        licence: Under which terms the bundle may be used.
    """
    return PolicyContract(
        problem="ordering",
        choice_features=_facts(JOB_FEATURES, ranges),
        context_features=_facts(POOL_FEATURES, ranges),
        choices=tuple(f"place {index}" for index in range(config.num_visible)),
        network=network,
        legality=EVERY_LEGAL if every_job else LEGALITY,
        action=ACTION,
        normalisation="none is fitted: shares of the pool, flags, and logarithms of counts and of durations "
        f"(in units of {config.time_unit_s:g} s)",
        unknown=UNKNOWN if every_job else UNKNOWN | BEYOND,
        trained_on=dict(trained_on or {}),
        setting={
            "processors": pool.processors,
            "easy": pool.easy,
            "backfill": "by_arrival" if config.backfill is None else config.backfill.__name__,
            **{name: getattr(config, name) for name in _SETTING},
            EVERY_JOB: every_job,
        },
        certificate=certificate,
        licence=licence or NOT_STATED,
    )


def _facts(
    features: tuple[Feature, ...], ranges: Mapping[str, tuple[float, float]] | None = None
) -> tuple[FeatureFacts, ...]:
    known = ranges or {}
    facts = []
    for one in features:
        low, high = known.get(one.name, (None, None))
        facts.append(FeatureFacts(one.name, one.unit, low, high, one.description))
    return tuple(facts)
