"""What deployments are granted by their objects, and what their containers are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logs_schema.errors import ConfigError
from offline_rl.runner.scaling import Granted
from offline_rl.serving.errors import QueryError
from offline_rl.serving.quantities import GIB, amount_of

RESOURCES = {"cpu_cores": ("cpu", 1000, "m"), "memory_gib": ("memory", 1024, "Mi")}
"""Grant of a replica -> its name in a container, and the unit in which it is written."""
LEAST_OF_FIRST = 10
"""Units that a first container keeps beside the others, at least."""


def granted_in(
    deployments: Mapping[str, Mapping[str, Any]], names: tuple[str, ...], otherwise: Granted
) -> Granted:
    """What deployments are granted by their objects: replicas, and limits (else requests) of their containers.

    Args:
        deployments: Name -> `apps/v1` Deployment.
        names: Which.
        otherwise: For cores and memory that no container names, and for replicas of what is no Deployment, such as a
            StatefulSet.

    Raises:
        ConfigError: A limit lies below its request, or is no quantity.
    """
    replicas, amounts = [], {"cpu": otherwise.cpu_cores.copy(), "memory": otherwise.memory_gib.copy()}
    for place, name in enumerate(names):
        spec = deployments.get(name, {}).get("spec", {})
        replicas.append(float(spec.get("replicas", 1) if spec else otherwise.replicas[place]))
        containers = spec.get("template", {}).get("spec", {}).get("containers", [])
        for resource, unit in (("cpu", 1.0), ("memory", GIB)):
            known = [
                amount
                for one in containers
                if (amount := _amount(name, resource, one.get("resources", {}))) is not None
            ]
            if known:
                amounts[resource][place] = sum(known) / unit
    return Granted(amounts["cpu"], amounts["memory"], np.array(replicas))


def first_amounts(
    deployment: str, containers: Sequence[Mapping[str, Any]], wanted: Mapping[str, float]
) -> dict[str, str]:
    """What the first container is to hold, so that all of them hold what a replica is granted.

    Args:
        deployment: Its name.
        containers: Of its pods; those after the first stay as they are.
        wanted: Grants of a replica, by names of `RESOURCES`.

    Raises:
        ConfigError: The others leave the first nothing, or it names no amount and they do.
    """
    amounts = {}
    for name, value in wanted.items():
        resource, scale, unit = RESOURCES[name]
        own, *others = (_amount(deployment, resource, one.get("resources", {})) for one in containers)
        per_unit = scale / (GIB if name == "memory_gib" else 1.0)
        held = sum(one for one in others if one is not None) * per_unit
        rest = round(scale * value - held)
        if rest < LEAST_OF_FIRST or (own is None and held > 0.0):
            raise ConfigError(
                f"{round(scale * value)}{unit} cannot be shared, the other containers hold {held:.0f}{unit}",
                where=f"deployment {deployment}, {resource}",
                allowed=f"a first container with a limit or request, and {LEAST_OF_FIRST}{unit} left for it",
                advice="bound the deployment by what all its containers need, or leave --resources out",
            )
        amounts[resource] = f"{rest}{unit}"
    return amounts


def _amount(deployment: str, resource: str, resources: Mapping[str, Any]) -> float | None:
    limit, request = (resources.get(kind, {}).get(resource) for kind in ("limits", "requests"))
    try:
        found = [amount_of(one) for one in (limit, request) if one is not None]
    except QueryError as error:
        raise ConfigError(
            error.what, where=f"deployment {deployment}, {resource}", allowed=error.allowed
        ) from error
    if len(found) == 2 and found[0] < found[1]:
        raise ConfigError(
            "a limit lies below its request",
            where=f"deployment {deployment}, {resource}: {limit} below {request}",
            allowed="limits of at least the requests",
            advice="mend the deployment",
        )
    return found[0] if found else None
