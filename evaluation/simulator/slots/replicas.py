"""The first deployment: which services are hosted where before orchestration begins.

Every site, and the cloud, fills `memory_share` of its nodes' memory with replicas, one after another, each of the
service that has the most work for each replica so far, on a node of the site that hosts the fewest of it, then on the
one with the fewest replicas for each core. So a site hosts first every service once, in the order of its work, and
then the busy ones again. NumPy, from the world's numbers of the day; no chance.
"""

import numpy as np

from logs_schema.errors import ConfigError, first


def first_deployment(
    work: np.ndarray,
    replica_gib: np.ndarray,
    memory_gib: np.ndarray,
    cores: np.ndarray,
    site_of_node: np.ndarray,
    hosts: np.ndarray,
    memory_share: float,
    most_replicas: int,
    names: tuple[str, ...],
) -> np.ndarray:
    """Places replicas.

    Args:
        work: [services, sites] offered work, any unit; a site without requests has the mean of the others.
        replica_gib: [services] memory of a replica.
        memory_gib: [nodes].
        cores: [nodes].
        site_of_node: [nodes] index of a site.
        hosts: [services, nodes] bool: the rules allow the service there.
        memory_share: Share of the memory to fill.
        most_replicas: Replicas of one service that a node has at most.
        names: [services] for messages.

    Returns:
        [services, nodes] int32 numbers of replicas; every service is hosted somewhere.

    Raises:
        ConfigError: some service fits on no node.
    """
    _refuse_homeless(replica_gib, memory_gib, hosts, names)
    replicas = np.zeros((len(replica_gib), len(memory_gib)), np.int32)
    for site in np.unique(site_of_node):
        here = np.flatnonzero(site_of_node == site)
        _fill(
            replicas, here, work[:, site], replica_gib, memory_share * memory_gib, cores, hosts, most_replicas
        )
    for service in np.flatnonzero(replicas.sum(axis=1) == 0):
        left = np.where(hosts[service], memory_gib - replica_gib @ replicas, -np.inf)
        node = int(np.argmax(left))
        if left[node] < replica_gib[service]:
            _refuse(
                f"service {names[service]} finds no memory beside the others ({left[node]:g} GiB left at most)",
                f"at least {replica_gib[service]:g} GiB left on some node",
            )
        replicas[service, node] = 1
    return replicas


def _fill(
    replicas: np.ndarray,
    here: np.ndarray,
    work: np.ndarray,
    replica_gib: np.ndarray,
    budget_gib: np.ndarray,
    cores: np.ndarray,
    hosts: np.ndarray,
    most_replicas: int,
) -> None:
    while True:
        left_gib = (budget_gib - replica_gib @ replicas)[here]
        fits = (
            hosts[:, here]
            & (replica_gib[:, None] <= left_gib[None] + 1e-9)
            & (replicas[:, here] < most_replicas)
        )
        possible = fits.any(axis=1)
        if not possible.any():
            return
        per_replica = np.where(possible, work / (replicas[:, here].sum(axis=1) + 1e-6), -1.0)
        service = int(np.argmax(per_replica))
        crowd = replicas[:, here].sum(axis=0) / cores[here]
        rank = np.where(fits[service], replicas[service, here] + crowd / (1.0 + crowd.max()), np.inf)
        replicas[service, here[int(np.argmin(rank))]] += 1


def _refuse_homeless(
    replica_gib: np.ndarray, memory_gib: np.ndarray, hosts: np.ndarray, names: tuple[str, ...]
) -> None:
    able = hosts & (replica_gib[:, None] <= memory_gib[None])
    homeless = [f"{names[index]} ({replica_gib[index]:g} GiB)" for index in np.flatnonzero(~able.any(axis=1))]
    if homeless:
        _refuse(
            f"no node can host a replica of: {first(homeless)}",
            f"at most {memory_gib.max():g} GiB, on a node that the rules allow",
        )


def _refuse(what: str, allowed: str) -> None:
    raise ConfigError(what, where="slot mode: first deployment", allowed=allowed, advice="change the world")
