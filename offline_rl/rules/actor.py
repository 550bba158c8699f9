"""Rules as actors: scores as logits, a few readable numbers as parameters; judged, exported and served as networks are.

The numbers stand where a network's layers would, under the rule's name, so one form keeps all policies:
`{"params": {"expected_on_time": {"price": 0.05, ...}}}`. Durations are in the encoding's time units.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import jax
import jax.numpy as jnp

from offline_rl.contract import EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE
from offline_rl.losses import mask_logits
from offline_rl.networks import Actor, parts_of
from offline_rl.rules.expected_on_time import HASTE, expected_on_time
from offline_rl.rules.least_expected_response import least_expected_response
from offline_rl.rules.offers import OfferEstimates, read_offers
from twin.contracts import Array, PyTree

SCORES: Mapping[str, Callable[[PyTree, OfferEstimates], Array]] = MappingProxyType(
    {EXPECTED_ON_TIME: expected_on_time, LEAST_EXPECTED_RESPONSE: least_expected_response}
)
"""Rule -> (its numbers, offers) -> scores [choices, *batch]."""
RUN_TIME_SPREAD = 0.5
"""Standard deviation of the logarithm of run times where a log does not give it."""


def rule_params(rule: str, **numbers: object) -> PyTree:
    """The parameters of a rule: `numbers` where given; else no transfers, crowding, price or toll, waits by the
    backlog."""
    names: dict[str, object] = {
        "latency": [0.0] * 3,
        "per_mib": [0.0] * 3,
        "wait_scale": 1.0,
        "behind_scale": 0.0,
        "crowding": [0.0] * 3,
        "price": 0.0,
        "toll": 0.0,
    }
    if rule == EXPECTED_ON_TIME:
        names |= {"spread": RUN_TIME_SPREAD, "haste": HASTE}
    values = {name: jnp.asarray(numbers.get(name, usual), jnp.float32) for name, usual in names.items()}
    return {"params": {rule: values}}


def with_usual(params: PyTree) -> PyTree:
    """Parameters of a rule, or of what corrects one, with the usual numbers where earlier ones lack some."""
    kinds = [rule for rule in SCORES if rule in params["params"]]
    usual = {rule: numbers_of(rule_params(rule)) | params["params"][rule] for rule in kinds}
    return {"params": {**params["params"], **usual}}


def numbers_of(params: PyTree) -> PyTree:
    """The numbers of a rule's parameters."""
    (numbers,) = params["params"].values()
    return numbers


@cache
def rule_actor(rule: str) -> Actor:
    """The actor of a rule, for any number of nodes; its logits are the scores, not calibrated to anything.

    One object for each rule: what is compiled for it is compiled once.
    """
    score = SCORES[rule]

    def logits(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        (mask,), structure = jax.tree.flatten(legal)
        offers = read_offers(*parts_of(observation))
        return jax.tree.unflatten(structure, [mask_logits(score(numbers_of(params), offers), mask)])

    return Actor(lambda _key: rule_params(rule), logits)
