"""A network that corrects a rule: logits are the rule's scores, sharpened, and a correction that begins at zero.

    logit_c = SHARPNESS * score_c of the rule + correction_c of a scorer whose last layer is zero at first

So training starts from the rule and has only to learn what the rule leaves out; at the start the greedy policy is the
rule itself (T. Johannink et al., Residual reinforcement learning for robot control, 2019). The rule's numbers stay.
"""

import jax
import jax.numpy as jnp

from offline_rl.contract import SHARPNESS
from offline_rl.losses import mask_logits
from offline_rl.networks import Actor, Example
from offline_rl.rules.actor import rule_actor, rule_params
from offline_rl.scorer import ScorerConfig, scorer
from twin.contracts import Array, PyTree


def residual(example: Example, rule: str, config: ScorerConfig | None = None) -> Actor:
    """The actor that corrects a rule.

    Args:
        example: Shapes of a policy's observation.
        rule: Of `offline_rl.contract.RULES`.
        config: Of the scorer that corrects.

    Returns:
        The actor; its parameters are those of rule and scorer side by side, the rule's numbers the usual ones until
        `on_rule` gives others.
    """
    below, correction = rule_actor(rule), scorer(example, config)

    def init(key: Array) -> PyTree:
        layers = correction.init(key)["params"]
        layers = {**layers, "score": jax.tree.map(jnp.zeros_like, layers["score"])}
        return {"params": {**rule_params(rule)["params"], **layers}}

    def logits(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        layers = dict(params["params"])
        numbers = {"params": {rule: jax.lax.stop_gradient(layers.pop(rule))}}
        scores = below.logits(numbers, observation, legal)
        corrected = correction.logits({"params": layers}, observation, legal)
        return jax.tree.map(
            lambda score, change, mask: mask_logits(SHARPNESS * score + change, mask),
            scores,
            corrected,
            legal,
        )

    return Actor(init, logits)


def on_rule(params: PyTree, rule: PyTree) -> PyTree:
    """The parameters of a residual, correcting the rule of these parameters."""
    return {"params": {**params["params"], **rule["params"]}}
