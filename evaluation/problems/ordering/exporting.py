"""Exports a learned order as a bundle: contract, network in NumPy and ONNX, golden decisions; and loads it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluation.problems.ordering.feature_ranges import Ranges
from evaluation.problems.ordering.fixed_orders import FixedOrder, order_of_setting
from evaluation.problems.ordering.learned_orders import Learned, index_policy
from evaluation.problems.ordering.playing import OrderPolicy
from logs_schema.calendar import DAY_S, EPOCH_DATE
from logs_schema.errors import ProductError
from offline_rl.bundle import read_network
from offline_rl.contract import SCORER as SCORER_KIND
from offline_rl.contract import NetworkFacts, PolicyContract
from offline_rl.export import export_policy, network_facts, params_of
from offline_rl.ordering.contract import ordering_contract, rule_contract
from offline_rl.ordering.index import Index
from offline_rl.ordering.index_scorer import index_of, scorer_of
from offline_rl.ordering.predicting import TIME_UNIT_S
from offline_rl.ordering.programs import SCORER, OrderTrainingConfig, judged_config
from offline_rl.runner import QueuePolicy, load_network
from twin.contracts import PyTree
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.orders import by_area
from twin.ordering.types import Pool

FAR = 8.0
"""More than any place in a rule's order, which is below 1: so the score of a rule's bundle is a line."""

INDEX_FACTS = NetworkFacts(SCORER_KIND, SCORER.hidden, SCORER.identity, SCORER.pooled)
"""Of the scorer that is an index."""


def best_index(
    learned: Learned, losses: tuple[float, ...], pool: Pool, exponents: np.ndarray | None = None
) -> tuple[int, PyTree]:
    """The seed whose index predicts held-out jobs best, and its scorer; with other exponents where some are given."""
    place = int(np.argmin(losses))
    return place, index_scorer(learned.indices[place], pool, exponents)


def index_scorer(index: Index, pool: Pool, exponents: np.ndarray | None = None) -> PyTree:
    """The scorer of an index, with other exponents where some are given."""
    return scorer_of(index if exponents is None else index._replace(exponents=exponents), pool)


class QueueBundle(NamedTuple):
    """What the bundle of an order says and holds besides the order.

    Attributes:
        pool: the processors; jobs are backfilled.
        config: configuration of the training, and the number of places of the evaluation.
        trained_on: first and last training day, and further identification of them.
        made_from: name -> content hash.
        licence: licence of the bundle.
        replace_old: whether an older bundle may be replaced.
        ranges: of the features on the training days.
        fallback: the rule to use where the policy has no answer; None: first come, first served.
    """

    pool: Pool
    config: OrderTrainingConfig
    trained_on: Mapping[str, Any]
    made_from: Mapping[str, str] | None = None
    licence: str | None = None
    replace_old: bool = False
    ranges: Ranges | None = None
    fallback: FixedOrder | None = None


def export_order(
    params: PyTree, out: Path, bundle: QueueBundle, *, seed: int | None = None, certificate: str | None = None
) -> None:
    """Writes the bundle of a scorer (see `offline_rl.export.export_policy`).

    Args:
        params: of the scorer.
        out: folder of the bundle.
        bundle: what else it says.
        seed: of the index.
        certificate: content hash of the passed certificate of the twin it was trained in.

    Raises:
        ProductError: a copy disagrees with the original, or `out` is taken.
    """
    pool = Pool(bundle.pool.processors, easy=True)
    contract = ordering_contract(
        pool,
        judged_config(bundle.config),
        network_facts(params),
        every_job=_index_in(params, pool) is not None,
        ranges=bundle.ranges,
        trained_on=bundle.trained_on,
        certificate=certificate,
        licence=bundle.licence,
    )
    _export(params, out, contract, bundle, seed)


def _index_in(params: PyTree, pool: Pool) -> Index | None:
    """The index that a scorer is; None for another network."""
    return index_of(params, pool) if network_facts(params) == INDEX_FACTS else None


def export_rule(order: FixedOrder, out: Path, bundle: QueueBundle) -> None:
    """Writes the bundle of a fixed order (see `fixed_order`); arrivals count from the day after the training days.

    Raises:
        ProductError: as `export_order`.
    """
    one, zero = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    params = {
        "params": {
            "choice": {"kernel": -one, "bias": zero + FAR},
            "context": {"kernel": np.zeros((len(POOL_FEATURES), 1), np.float32), "bias": zero},
            "score": {"kernel": one, "bias": zero},
        }
    }
    contract = rule_contract(
        Pool(bundle.pool.processors, easy=order.easy),
        judged_config(bundle.config),
        network_facts(params),
        order.setting(),
        _origin_s(bundle.trained_on),
        ranges=bundle.ranges,
        trained_on=bundle.trained_on,
        licence=bundle.licence,
    )
    _export(params, out, contract, bundle, None)


def _export(
    params: PyTree, out: Path, contract: PolicyContract, bundle: QueueBundle, seed: int | None
) -> None:
    """Writes the bundle, with the fallback rule in its contract if there is one."""
    if (rule := bundle.fallback) is not None:
        setting = rule.setting() | {"easy": rule.easy, "rule_origin_s": _origin_s(bundle.trained_on)}
        contract = replace(contract, setting=contract.setting | {"fallback": setting})
    export_policy(
        params,
        out,
        contract,
        made_from=bundle.made_from,
        config=bundle.config,
        seed=seed,
        replace=bundle.replace_old,
    )


def _origin_s(trained_on: Mapping[str, Any]) -> float:
    """Seconds since 1970 of the day after the training days."""
    after = date.fromisoformat(trained_on["last_day"]) + timedelta(days=1)
    return float((after - EPOCH_DATE).days * DAY_S)


def policy_of_bundle(bundle: Path) -> tuple[OrderPolicy, Pool]:
    """What a bundle of a queue holds, an index or a fixed order, as a policy that replay can play, and its pool.

    Raises:
        ProductError: as `load_order`.
    """
    policy = load_network(bundle)
    QueuePolicy(policy)
    contract = policy.contract
    if "rule" in contract.setting:
        size, name = float(contract.setting["processors"]), contract.trained_on.get("pool")
        order = order_of_setting(contract.setting)
        pool = Pool(size, order.easy, name)
        return order.policy(pool), pool
    index, pool = load_order(bundle)
    return index_policy([[index]], pool), pool


def load_order(bundle: Path) -> tuple[Index, Pool]:
    """The index in a bundle that `export_order` wrote, and the pool that it orders.

    Raises:
        ProductError: The bundle is damaged, of another problem or version, or holds no index.
    """
    policy = load_network(bundle)
    QueuePolicy(policy)
    contract, setting = policy.contract, policy.contract.setting
    pool = Pool(float(setting["processors"]), bool(setting["easy"]), contract.trained_on.get("pool"))
    params = params_of(read_network(bundle, contract))
    known = [one.name for one in contract.choice_features] == [one.name for one in JOB_FEATURES] and (
        setting["time_unit_s"],
        setting["easy"],
        setting["backfill"],
    ) == (TIME_UNIT_S, True, by_area.__name__)
    index = _index_in(params, pool) if known else None
    if index is None:
        raise ProductError(
            "the bundle holds no index of predicted run times",
            where=str(bundle),
            allowed="an order written by schedtwin export, run or order of this version",
            advice="train and export again",
        )
    return index, pool
