"""Autoscalers of the user's in a comparison: functions, and bundles."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.judges.user_policies import EnteredPolicies, Takes, UserPolicy, enter
from logs_schema.errors import ConfigError
from offline_rl.autoscaling.export import config_of
from offline_rl.bundle import ARRAYS, read_arrays
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, learned
from offline_rl.rules.autoscaling.horizontal_pod import horizontal_pod, pod_rule
from offline_rl.rules.autoscaling.rescue import rescued
from offline_rl.runner.scaling import POD_RULE, load_scaling
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants
from twin.contracts import Array, Policy, PyTree
from twin.nested import nested

SIGNATURE = (
    "a function (key, state) -> grants, of operations of JAX: state a twin.autoscaling.state.ScalingState, grants a "
    "twin.autoscaling.types.Grants with leaves [deployments, *streams], as state.grants has them"
)


def user_autoscalers(
    policies: Mapping[str, UserPolicy],
    taken: Collection[str],
    deployments: Sequence[str],
    network: Callable[[str, PyTree], Policy],
) -> EnteredPolicies[Autoscaler]:
    """The user's policies as autoscalers.

    Args:
        policies: Name -> function, see `SIGNATURE`, or folder of a bundle.
        taken: Names of the comparison's own policies.
        deployments: Of the application.
        network: (form of a bundle, parameters) -> policy.

    Raises:
        ConfigError: A name is taken.
    """
    takes = Takes(
        SIGNATURE, _of_function, bundle=lambda _name, folder: bundled_autoscaler(folder, deployments, network)
    )
    return enter(policies, taken, takes)


def _of_function(name: str, function: Callable[..., Any]) -> Autoscaler:
    def decide(key: Array, memory: PyTree, state: ScalingState) -> tuple[PyTree, Grants]:
        wanted = function(key, state)
        shapes = [jax.numpy.shape(leaf) for leaf in jax.tree.leaves(wanted)]
        if not isinstance(wanted, Grants) or shapes != [leaf.shape for leaf in state.grants]:
            raise ConfigError(
                f"policy {name!r} returns a {type(wanted).__name__} of arrays {shapes}",
                where="--policy",
                allowed=SIGNATURE,
            )
        return memory, wanted

    return Autoscaler(lambda _grants: (), decide)


def bundled_autoscaler(
    bundle: Path, deployments: Sequence[str], network: Callable[[str, PyTree], Policy]
) -> Autoscaler:
    """The autoscaler of a bundle.

    Raises:
        OtherSystemError: The bundle is of other deployments.
        ProductError: The bundle is damaged.
    """
    setting = load_scaling(bundle).setting
    if setting.names != tuple(deployments):
        raise OtherSystemError(
            "the bundle was trained for other deployments",
            where=f"{bundle}: {', '.join(setting.names)}",
            allowed=", ".join(deployments),
            advice="train and export a policy for this system",
        )
    config, limits = config_of(setting)
    if setting.form == POD_RULE:
        decides = horizontal_pod(config, limits, pod_rule(setting))
    else:
        params = nested(read_arrays(bundle / ARRAYS))
        decides = learned(config, limits, network(setting.form, {"params": params}))
    return rescued(config, limits, decides, setting.limit("core_s_per_request"))
