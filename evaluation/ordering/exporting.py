"""Hands a learned order over as a bundle: contract, network in NumPy and ONNX, golden decisions; and takes it back."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ordering.learned import Learned
from evaluation.ordering.predicting import TIME_UNIT_S, Index, index_of, scorer_of
from evaluation.ordering.programs import SCORER, OrderTrainingConfig, problem_config
from logs_schema.errors import ProductError
from offline_rl.bundle import read_network
from offline_rl.contract import SCORER as SCORER_KIND
from offline_rl.contract import NetworkFacts
from offline_rl.export import export_policy, network_facts, params_of
from offline_rl.ordering_contract import ordering_contract
from offline_rl.runner import QueuePolicy, load_network
from twin.contracts import PyTree
from twin.ordering.features import JOB_FEATURES
from twin.ordering.orders import by_area
from twin.ordering.types import Pool


def best_index(learned: Learned, losses: tuple[float, ...], pool: Pool) -> tuple[int, PyTree]:
    """The seed whose index predicts held-out jobs best, and its scorer."""
    place = int(np.argmin(losses))
    return place, scorer_of(learned.indices[place], pool)


def export_order(
    params: PyTree,
    out: Path,
    pool: Pool,
    config: OrderTrainingConfig,
    *,
    trained_on: Mapping[str, Any],
    made_from: Mapping[str, str] | None = None,
    seed: int | None = None,
    licence: str | None = None,
    certificate: str | None = None,
    replace_old: bool = False,
) -> None:
    """Writes the bundle of a scorer (see `offline_rl.export.export_policy`).

    Args:
        params: of the scorer.
        out: folder of the bundle.
        pool: the processors; jobs are backfilled.
        config: how it was trained, and how many places it sees where it is judged.
        trained_on: first and last training day, and what else identifies them.
        made_from: name -> content hash.
        seed: of the index.
        licence: terms under which the bundle may be used.
        certificate: content hash of the passed certificate of the twin it was trained in.
        replace_old: whether an older bundle may be replaced.

    Raises:
        ProductError: a copy disagrees with the original, or `out` is taken.
    """
    easy = Pool(pool.processors, easy=True)
    problem = problem_config(replace(config, num_visible=config.num_judged))
    contract = ordering_contract(
        easy, problem, network_facts(params), trained_on=trained_on, certificate=certificate, licence=licence
    )
    export_policy(params, out, contract, made_from=made_from, config=config, seed=seed, replace=replace_old)


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
    known = (
        [one.name for one in contract.choice_features] == [one.name for one in JOB_FEATURES]
        and network_facts(params) == NetworkFacts(SCORER_KIND, SCORER.hidden, SCORER.identity, SCORER.pooled)
        and (setting["time_unit_s"], setting["easy"], setting["backfill"])
        == (TIME_UNIT_S, True, by_area.__name__)
    )
    index = index_of(params, pool) if known else None
    if index is None:
        raise ProductError(
            "the bundle holds no index of predicted run times",
            where=str(bundle),
            allowed="what schedtwin export, run or order wrote for a queue, with this version",
            advice="train and export again",
        )
    return index, pool
