"""Hands a learned order over as a bundle: contract, network in NumPy and ONNX, golden decisions."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ordering.learned import Learned
from evaluation.ordering.predicting import scorer_of
from evaluation.ordering.programs import OrderTrainingConfig, problem_config
from offline_rl.export import export_policy, network_facts
from offline_rl.ordering_contract import ordering_contract
from twin.contracts import PyTree
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
