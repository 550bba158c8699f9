"""Hands a scheduler of the assignment problem over: its network for NumPy and ONNX, and golden rounds that prove it."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from logs_schema.product import writing
from offline_rl.assignment.assigner import (
    SEARCH,
    Assigner,
    AssignerSetting,
    golden_search,
    prove,
    write_setting,
)
from offline_rl.assignment.layers import Params
from offline_rl.assignment.learning import single
from offline_rl.assignment.onnx_priced import priced_from_graph, priced_graph
from offline_rl.assignment.priced import pairs_of, priced_logits
from offline_rl.bundle import ARRAYS, ASSIGNMENT_KIND, GOLDEN, GRAPH
from twin.assignment.types import Costs, row_of
from twin.nested import by_path

NUM_GOLDEN = 16


def export_assigner(
    params: Params,
    out: Path,
    setting: AssignerSetting,
    draw: Callable[[np.random.Generator, int], Costs],
    *,
    seed: int = 0,
    made_from: Mapping[str, str] | None = None,
    extra: dict[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Writes a scheduler as a bundle (see `offline_rl.assignment.assigner`) and proves it; ONNX where it is installed.

    Args:
        params: Of the priced network; none where the setting names none.
        out: Folder of the bundle.
        setting: What it was trained for.
        draw: (generator, how many) -> costs of rounds, as in training; leaves [rounds, ...].
        seed: It was trained with; also draws the goldens.
        made_from: Name -> content hash of what it was made from.
        extra: Free facts for the manifest.
        replace: Whether an older bundle may be replaced.

    Raises:
        ProductError: The copy does not answer as the network, or `out` is taken.
    """
    costs: Costs = single(draw(np.random.default_rng([seed, 0x601D]), NUM_GOLDEN))
    has_network = setting.network != SEARCH
    assigner = Assigner(setting, params)
    edge = np.stack([assigner.assign(row_of(costs, row), golden_search()) for row in range(NUM_GOLDEN)])
    golden = {"edge": edge}
    golden |= {"logits": np.asarray(jax.jit(_logits)(params, costs))} if has_network else {}
    golden |= {f"costs/{name}": leaf for name, leaf in costs._asdict().items()}
    with writing(
        out, ASSIGNMENT_KIND, made_from=made_from, seed=seed, extra=extra, replace=replace
    ) as folder:
        write_setting(folder, setting)
        if has_network:
            np.savez(folder / ARRAYS, allow_pickle=False, **by_path(params))
        copies = [assigner]
        if has_network and find_spec("onnx") and find_spec("onnxruntime"):
            (folder / GRAPH).write_bytes(priced_graph(params))
            copies.append(Assigner(setting, params, network=priced_from_graph(folder)))
        np.savez(folder / GOLDEN, allow_pickle=False, **golden)
        for copy in copies:
            prove(copy, folder)


def _logits(params: Params, costs: Costs) -> Any:
    return priced_logits(params, pairs_of(costs))
