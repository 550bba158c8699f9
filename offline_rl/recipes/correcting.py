"""The networks that may correct a rule, made before it is known which rule is the best."""

from collections.abc import Mapping

import jax
import numpy as np

from offline_rl.networks import Actor, Example
from offline_rl.rules.residual import on_rule, residual
from offline_rl.scorer import ScorerConfig
from twin.contracts import Array, PyTree

CORRECTIONS = {"narrow_scorer": ScorerConfig((32, 16))}
"""Policy network -> what corrects a rule beside it, where that is not as wide as usual."""


def kind_of(rule: PyTree) -> str:
    """One of `offline_rl.contract.RULES`: a tuned rule is of the kind of its plain one."""
    return str(next(iter(rule["params"])))


def correctors_of(example: Example, rules: Mapping[str, PyTree], network: str) -> dict[str, Actor]:
    """Kind of rule -> the network that corrects one, beside a policy network of that name."""
    kinds = dict.fromkeys(kind_of(params) for params in rules.values())
    return {kind: residual(example, kind, CORRECTIONS.get(network)) for kind in kinds}


def shaped_as(network: Actor, key: Array, rules: Mapping[str, PyTree], kind: str) -> PyTree:
    """Zeros in the shapes of a corrector's parameters on a rule of the kind."""
    rule = next(params for params in rules.values() if kind_of(params) == kind)
    shapes = jax.eval_shape(lambda key: on_rule(network.init(key), rule), key)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
