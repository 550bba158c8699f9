"""Hands a policy over: a bundle that needs none of the training stack, and that proves itself.

Before the bundle appears under its name, random observations (and observed ones, if given) are decided by the
original network in JAX, by NumPy and by ONNX Runtime; all three must agree, or there is no bundle.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl.bundle import (
    GOLDEN,
    GRAPH,
    KIND,
    TOLERANCE,
    Layers,
    PolicyContract,
    write_contract,
    write_layers,
)
from offline_rl.networks import ACTOR_HIDDEN, Example, actor, greedy
from offline_rl.onnx_graph import masked_mlp
from offline_rl.runner.network import ExportedPolicy, numpy_network, onnx_network, replay_golden
from twin.contracts import PyTree

NUM_RANDOM = 256
"""Random golden observations."""


def export_policy(
    params: PyTree,
    out: Path | str,
    *,
    features: Sequence[tuple[str, str]],
    actions: Sequence[str],
    legality: str,
    hidden: Sequence[int] = ACTOR_HIDDEN,
    observed: np.ndarray | None = None,
    made_from: Mapping[str, str] | None = None,
    config: Any = None,
    seed: int | None = None,
    extra: dict[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Writes the greedy policy of an actor as a bundle (see `offline_rl.bundle`).

    Args:
        params: Parameters of the actor.
        out: Folder of the bundle.
        features: (name, unit) of every feature, in the order of `flatten_features`.
        actions: Name of every choice of the action's only leaf.
        legality: When a choice is legal, in words.
        hidden: Widths of the actor's hidden layers.
        observed: [n, F] real observations to add to the random golden ones.
        made_from: Name -> content hash of what it was made from.
        config: Configuration it was made with.
        seed: Seed it was trained with; also draws the random golden observations.
        extra: Free facts for the manifest.
        replace: Whether an older bundle may be replaced.

    Raises:
        ProductError: The network is not one of so many features, widths and actions, a copy disagrees with
            it, onnx or onnxruntime is missing, or `out` is taken.
    """
    contract = PolicyContract(
        tuple((str(name), str(unit)) for name, unit in features),
        tuple(map(str, actions)),
        legality,
        tuple(hidden),
    )
    layers = layers_of(params, contract)
    golden = golden_decisions(params, contract, observed, seed or 0)
    graph = masked_mlp(layers)
    with writing(
        out, KIND, made_from=made_from, config=config, seed=seed, extra=extra, replace=replace
    ) as folder:
        write_contract(folder, contract)
        write_layers(folder, layers)
        (folder / GRAPH).write_bytes(graph)
        np.savez(folder / GOLDEN, allow_pickle=False, **golden)
        for build in (numpy_network, onnx_network):
            replay_golden(ExportedPolicy(contract, "", build(folder, contract)), folder)


def layers_of(params: PyTree, contract: PolicyContract) -> Layers:
    """The actor's layers as arrays.

    Raises:
        ProductError: They are not those of the contract.
    """
    found = params["params"]
    ordered = [found[f"Dense_{index}"] for index in range(len(found)) if f"Dense_{index}" in found]
    layers = Layers([one["kernel"] for one in ordered], [one["bias"] for one in ordered])
    if len(ordered) != len(found) or layers.widths != contract.widths:
        raise ProductError(
            "the policy's network is not the one described",
            where=f"layers of widths {layers.widths}",
            allowed=f"{contract.widths}: features, hidden layers, actions",
            advice="describe the features, widths and actions it was trained with",
        )
    return layers


def golden_decisions(
    params: PyTree, contract: PolicyContract, observed: np.ndarray | None, seed: int
) -> dict[str, np.ndarray]:
    """Observations under random masks, with the original's logits and greedy actions.

    An observation whose two best choices are closer than twice the tolerance is left out: which of them is
    taken there is a matter of rounding, not of the policy.

    Returns:
        features [n, F], legal [n, A], logits [n, A], action [n].

    Raises:
        ProductError: `observed` has another number of features, or values that are not finite.
    """
    rng = np.random.default_rng(seed)
    num_features, num_actions = len(contract.features), len(contract.actions)
    features = rng.normal(size=(NUM_RANDOM, num_features)).astype(np.float32)
    if observed is not None:
        seen = np.asarray(observed, np.float32)
        if seen.ndim != 2 or seen.shape[1] != num_features or not np.isfinite(seen).all():
            raise ProductError(
                "the observed features cannot serve as golden observations",
                where=f"shape {list(seen.shape)}",
                allowed=f"[n, {num_features}], finite",
            )
        features = np.concatenate([features, seen])
    legal = rng.random((len(features), num_actions)) < rng.choice([0.1, 0.5, 1.0], (len(features), 1))
    legal[np.arange(len(features)), rng.integers(num_actions, size=len(features))] = True

    example = Example(
        jax.ShapeDtypeStruct((num_features, 1), jnp.float32),
        jax.ShapeDtypeStruct((num_actions, 1), jnp.bool_),
        None,
    )
    with jax.default_matmul_precision("highest"):
        network = actor(example, contract.hidden)
        masked = network.logits(params, jnp.asarray(features.T[:, None]), jnp.asarray(legal.T[:, None]))
    logits, action = np.asarray(masked)[:, 0].T, np.asarray(greedy(masked))[0].astype(np.int64)
    best = np.sort(np.where(legal, logits, -np.inf), axis=1)[:, -2:]
    is_clear = (legal.sum(axis=1) == 1) | (
        best[:, -1] - best[:, 0] > 2 * TOLERANCE * np.maximum(1, abs(best[:, -1]))
    )
    return {
        "features": features[is_clear],
        "legal": legal[is_clear],
        "logits": logits[is_clear],
        "action": action[is_clear],
    }
