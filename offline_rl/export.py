"""Exports a policy: a bundle that needs none of the training stack, and that verifies itself.

Before the bundle appears under its name, random observations (and observed ones, if given) are decided by the
original network in JAX, by NumPy and by ONNX Runtime; all three must agree, or there is no bundle. So must plain
questions, taken through the whole path that a caller takes (`offline_rl.questions`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl.bundle import GOLDEN, GOLDEN_ARRAYS, GRAPH, KIND, check_shapes, write_network
from offline_rl.contract import (
    CORRECTED,
    MLP,
    ON_TIME_BY_REPLICAS,
    RULES,
    SCORER,
    NetworkFacts,
    PolicyContract,
    write_contract,
)
from offline_rl.distributions import greedy
from offline_rl.networks import Actor, Example, actor
from offline_rl.numpy_networks import numpy_network
from offline_rl.numpy_rules import rule_of
from offline_rl.onnx_graph import graph_of
from offline_rl.questions import drawn_questions, rows_of_answers, steady_rows, write_questions
from offline_rl.rules.actor import rule_actor
from offline_rl.rules.on_time_by_replicas import replica_residual
from offline_rl.rules.residual import residual
from offline_rl.runner.form import Answered
from offline_rl.runner.forms import form_of
from offline_rl.runner.loading import prove
from offline_rl.runner.network import ExportedPolicy, from_arrays, from_graph
from offline_rl.scorer import ScorerConfig, scorer
from twin.contracts import PyTree

NUM_RANDOM = 256
"""Random golden observations."""


def export_policy(
    params: PyTree,
    out: Path | str,
    contract: PolicyContract,
    *,
    observed: np.ndarray | None = None,
    made_from: Mapping[str, str] | None = None,
    config: Any = None,
    seed: int | None = None,
    extra: dict[str, Any] | None = None,
    stand_in: PyTree | None = None,
    replace: bool = False,
    beside: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Writes the greedy policy of an actor as a bundle (see `offline_rl.bundle`).

    Args:
        params: Parameters of the actor.
        out: Folder of the bundle.
        contract: What the policy's callers must know; its features and choices in the order of training.
        observed: [n, F * A + R] real observations, as `flatten_features` has them, to add to the random golden ones.
        made_from: Name -> content hash of what it was made from.
        config: Configuration it was made with.
        seed: Seed it was trained with; also draws the random golden observations.
        extra: Free facts for the manifest.
        stand_in: Parameters of the rule that decides where the policy does not answer; not needed by a policy that is
            a rule, or corrects one.
        replace: Whether an older bundle may be replaced.
        beside: Writes further files into the bundle's folder, before it appears under its name.

    Raises:
        ProductError: The network is not one of so many features, widths and choices, a copy disagrees with
            it, onnx or onnxruntime is missing, or `out` is taken.
    """
    arrays = named_arrays(params)
    if stand_in is not None and rule_of(contract) is None:
        (rule,) = stand_in["params"]
        contract = changed(contract, network=changed(contract.network, stand_in=rule))
        arrays |= named_arrays(stand_in)
    check_shapes(arrays, contract, where="the policy's parameters")
    form, rng = form_of(contract.problem), np.random.default_rng(seed or 0)
    exported = ExportedPolicy(contract, "", numpy_network(arrays, contract))
    questions, answers = ([], []) if form is None else drawn_questions(exported, form, rng)
    golden = golden_decisions(params, contract, observed, rng, answers)
    steady = steady_rows(exported, golden["choices"], golden["context"], golden["legal"])
    steady[: len(questions)] = True
    golden = {name: array[steady] for name, array in golden.items()}
    graph = graph_of(arrays, contract)
    with writing(
        out, KIND, made_from=made_from, config=config, seed=seed, extra=extra, replace=replace
    ) as folder:
        write_contract(folder, contract)
        write_network(folder, arrays)
        (folder / GRAPH).write_bytes(graph)
        np.savez(folder / GOLDEN, allow_pickle=False, **golden)
        if form is not None:
            write_questions(folder, questions)
        for build in (from_arrays, from_graph):
            prove(ExportedPolicy(contract, "", build(folder, contract)), folder)
        beside(folder)


def named_arrays(params: PyTree) -> dict[str, np.ndarray]:
    """The actor's arrays by layer: `<layer>/kernel` and `<layer>/bias`, or `<rule>/<number>`; float32."""
    return {
        f"{layer}/{part}": np.asarray(array, np.float32)
        for layer, parts in params["params"].items()
        for part, array in parts.items()
    }


def params_of(arrays: Mapping[str, np.ndarray]) -> PyTree:
    """The actor's parameters that `named_arrays` named."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        layer, part = name.rsplit("/", 1)
        layers.setdefault(layer, {})[part] = array
    return {"params": layers}


def network_facts(params: PyTree) -> NetworkFacts:
    """What network an actor's parameters are of, by the names and widths of their layers.

    Raises:
        ProductError: They are of a network that cannot be exported.
    """
    layers = params["params"]
    rule = next((name for name in CORRECTED if name in layers), None)
    if rule in RULES and len(layers) == 1:
        return NetworkFacts(str(rule), ())
    layers = {layer: parts for layer, parts in layers.items() if layer != rule}
    widths = {layer: len(parts["bias"]) for layer, parts in layers.items()}
    dense, further = _numbered(widths, "Dense_"), _numbered(widths, "layer_")
    pooled = "pool_0" in widths
    if rule is None and dense and len(dense) == len(widths):
        return NetworkFacts(MLP, tuple(dense[:-1]))
    if {"choice", "context", "score"} <= widths.keys() and len(widths) == 3 + len(further) * (1 + pooled):
        identity = widths["context"] != widths["choice"]
        return NetworkFacts(SCORER, (widths["choice"], *further), identity, pooled, corrects=rule)
    raise ProductError(
        "this policy's network cannot be exported",
        where=f"layers {', '.join(sorted(widths))}",
        allowed="the actors of offline_rl.networks, offline_rl.scorer and offline_rl.rules",
    )


def _numbered(widths: Mapping[str, int], prefix: str) -> list[int]:
    """Widths of `<prefix>0`, `<prefix>1`, ... as far as they go."""
    found: list[int] = []
    while f"{prefix}{len(found)}" in widths:
        found.append(widths[f"{prefix}{len(found)}"])
    return found


def original(contract: PolicyContract) -> Actor:
    """The actor in JAX that a contract describes."""
    num_choices, num_features, num_context = contract.widths
    example = Example(
        (
            jax.ShapeDtypeStruct((num_features, num_choices, 1), jnp.float32),
            jax.ShapeDtypeStruct((num_context, 1), jnp.float32),
        ),
        jax.ShapeDtypeStruct((num_choices, 1), jnp.bool_),
        None,
    )
    return network_of(contract.network, example)


def network_of(facts: NetworkFacts, example: Example) -> Actor:
    """The actor of a kind and widths, for these shapes."""
    if facts.kind in RULES:
        return rule_actor(facts.kind)
    if facts.kind == MLP:
        return actor(example, facts.hidden)
    config = ScorerConfig(facts.hidden, facts.identity, facts.pooled)
    if facts.corrects == ON_TIME_BY_REPLICAS:
        return replica_residual(example, config=config)
    return scorer(example, config) if facts.corrects is None else residual(example, facts.corrects, config)


def split_flat(flat: np.ndarray, contract: PolicyContract) -> tuple[np.ndarray, np.ndarray]:
    """Flattened observations [n, F * A + R] as choices [n, A, F] and context [n, R]."""
    num_choices, num_features, _ = contract.widths
    cut = num_choices * num_features
    choices = flat[:, :cut].reshape(len(flat), num_features, num_choices)
    return np.ascontiguousarray(choices.transpose(0, 2, 1)), np.ascontiguousarray(flat[:, cut:])


def golden_decisions(
    params: PyTree,
    contract: PolicyContract,
    observed: np.ndarray | None,
    rng: np.random.Generator,
    answers: Sequence[Answered] = (),
) -> dict[str, np.ndarray]:
    """Answers to plain questions, and observations under random masks, with the original's logits and greedy actions.

    Returns:
        choices [n, A, F], context [n, R], legal [n, A], logits [n, A], action [n]; the questions come first.

    Raises:
        ProductError: `observed` has another number of features, or values that are not finite.
    """
    num_choices, num_features, num_context = contract.widths
    flat = rng.normal(size=(NUM_RANDOM, num_choices * num_features + num_context)).astype(np.float32)
    if observed is not None:
        flat = np.concatenate([flat, _fit_to_serve(observed, flat.shape[1])])
    legal = rng.random((len(flat), num_choices)) < rng.choice([0.1, 0.5, 1.0], (len(flat), 1))
    legal[np.arange(len(flat)), rng.integers(num_choices, size=len(flat))] = True

    drawn = (*split_flat(flat, contract), legal)
    seen = [np.concatenate(pair) for pair in zip(rows_of_answers(answers, contract), drawn, strict=True)]
    logits, action = decided(params, contract, *seen)
    return dict(zip(GOLDEN_ARRAYS, (*seen, logits, action), strict=True))


def decided(
    params: PyTree, contract: PolicyContract, choices: np.ndarray, context: np.ndarray, legal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the original in JAX makes of observations.

    Args:
        params: Parameters of the actor.
        contract: What they are; a network bound to no choices takes any number of them.
        choices, context, legal: [n, A, F], [n, R], [n, A].

    Returns:
        Masked logits [n, A] and the greedy action [n] int64.
    """
    if contract.network.any_choices:
        contract = changed(contract, choices=tuple(map(str, range(legal.shape[1]))))
    network = original(contract)
    observation = jnp.asarray(choices.transpose(2, 1, 0)[:, :, None]), jnp.asarray(context.T[:, None])
    with jax.default_matmul_precision("highest"):
        masked = jax.jit(network.logits)(params, observation, jnp.asarray(legal.T[:, None]))
    return np.asarray(masked)[:, 0].T, np.asarray(greedy(masked))[0].astype(np.int64)


def _fit_to_serve(observed: np.ndarray, num_features: int) -> np.ndarray:
    seen = np.asarray(observed, np.float32)
    if seen.ndim != 2 or seen.shape[1] != num_features or not np.isfinite(seen).all():
        raise ProductError(
            "the observed features cannot serve as golden observations",
            where=f"shape {list(seen.shape)}",
            allowed=f"[n, {num_features}], finite",
        )
    return seen
