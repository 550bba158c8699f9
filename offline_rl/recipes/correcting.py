"""The networks that may correct a rule, made before it is known which rule is the best."""

from collections.abc import Mapping

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


def uncorrected(network: Actor, key: Array, rules: Mapping[str, PyTree], kind: str) -> PyTree:
    """Parameters of a corrector on some rule of the kind."""
    return on_rule(network.init(key), next(params for params in rules.values() if kind_of(params) == kind))
