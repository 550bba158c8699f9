"""The expected on-time rule where replicas decide: a request waits for a core and for a replica of its service.

    wait  = max(backlog where the node has no core free, run * (requests of the service - replicas + 1)+ / replicas)
    left  = deadline - waited at the access point - wait - 2 latency
    score = Phi(ln(left / run) / spread) - price * ln(1 + core time) * (1 + busy) - haste * ln(1 + wait + run + latency)

It reads what `twin.orchestration.slots` shows a dispatcher, and nothing else; `rules.expected_on_time` is the same rule
for nodes that serve whatever they have cores for. The rule is an actor whose logits are its scores, sharpened: a
draw from it spreads equals. A network can correct it from there, beginning at zero (see `rules.residual`).
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from offline_rl.contract import ON_TIME_BY_REPLICAS, SHARPNESS
from offline_rl.losses import mask_logits
from offline_rl.networks import Actor, Example, parts_of
from offline_rl.replica_scores import replica_scores
from offline_rl.scorer import ScorerConfig, scorer
from twin.contracts import Array, PyTree
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import NUMERIC_REQUEST_FEATURES
from twin.placement.types import Observation

_OF_NODE = {feature.name: row for row, feature in enumerate(SLOT_NODE_FEATURES)}
_OF_REQUEST = {feature.name: row for row, feature in enumerate(NUMERIC_REQUEST_FEATURES)}
_WAITED = -len(SLOT_REQUEST_FEATURES)


def replica_rule_params(
    latency_s: tuple[float | Array, float | Array, float | Array] = (0.0, 0.0, 0.0),
    spread: float = 0.5,
    price: float = 0.02,
    haste: float = 1e-3,
) -> PyTree:
    """The numbers of the rule: one-way latency at home, at another site, in the cloud; see the equations above."""
    numbers = {"latency": latency_s, "spread": spread, "price": price, "haste": haste}
    return {
        "params": {
            ON_TIME_BY_REPLICAS: {name: jnp.asarray(value, jnp.float32) for name, value in numbers.items()}
        }
    }


def replica_rule() -> Actor:
    """The rule as an actor, for any number of nodes."""

    def logits(params: PyTree, observation: Observation, legal: Array) -> Array:
        return mask_logits(SHARPNESS * scores(params["params"][ON_TIME_BY_REPLICAS], observation), legal)

    return Actor(lambda _key: replica_rule_params(), logits)


def replica_residual(
    example: Example,
    rule: PyTree | None = None,
    config: ScorerConfig | None = None,
    *,
    any_size: bool = False,
) -> Actor:
    """The actor that corrects the rule: its scores, sharpened, and a scorer that begins at zero.

    Args:
        example: Shapes of a dispatcher's observation.
        rule: Its numbers, from `replica_rule_params`; the usual ones if not given. They stay as they are.
        config: Of the scorer; without `identity` the actor serves any number of nodes.
        any_size: The scorer sees of a request its numbers alone, not which site or service it is of: what is learned
            in one cluster decides in others, whatever their nodes, access points and services.
    """

    def seen(observation: Observation) -> Observation:
        return numbers_alone(observation) if any_size else observation

    shown = example._replace(observation=jax.eval_shape(seen, example.observation))
    correction = scorer(shown, config or ScorerConfig(identity=False))
    numbers = (replica_rule_params() if rule is None else rule)["params"]

    def init(key: Array) -> PyTree:
        layers = correction.init(key)["params"]
        return {"params": {**numbers, **layers, "score": jax.tree.map(jnp.zeros_like, layers["score"])}}

    def logits(params: PyTree, observation: Observation, legal: Array) -> Array:
        layers = dict(params["params"])
        base = scores(jax.lax.stop_gradient(layers.pop(ON_TIME_BY_REPLICAS)), observation)
        change = correction.logits({"params": layers}, seen(observation), legal)
        return mask_logits(SHARPNESS * base + change, legal)

    return Actor(init, logits)


def numbers_alone(observation: Observation) -> Observation:
    """What is seen of nodes, and of the request without its vocabularies."""
    node, request = parts_of(observation)
    return Observation(node, jnp.concatenate([request[: len(_OF_REQUEST)], request[_WAITED:]]))


def scores(numbers: PyTree, observation: PyTree) -> Array:
    """[nodes, seats, *streams] at most 1; `observation` is a pair, of nodes and of the request."""
    node, request = parts_of(observation)
    seen = {name: node[row] for name, row in _OF_NODE.items()}
    of_request = {name: request[row][None] for name, row in _OF_REQUEST.items()}
    of_request["waited"] = request[_WAITED][None]
    found: Array = replica_scores(jnp, ndtr, numbers, seen, of_request)
    return found
