"""A Ray cluster: connected to, or started for the duration of a command, and checked before tasks run on it."""

import importlib.metadata
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from logs_schema.errors import ConfigError, first
from logs_schema.extras import how_to_install
from logs_schema.hashing import file_hash, json_hash

CONNECT_S = 5.0
STORE_BYTES = 128 * 2**20
LOOPBACK = "127.0.0.1"
PACKAGES = ("evaluation", "logs_schema", "offline_rl", "twin")
DISTRIBUTIONS = ("ray", "numpy", "pyarrow", "jax")


@contextmanager
def connected(address: str | None, workers: int, shared: Sequence[Path]) -> Iterator[ModuleType]:
    """Ray, connected to a cluster as long as the block runs.

    Args:
        address: ray://HOST:PORT; None for two nodes on this machine for the duration of the block.
        workers: Processors of these two nodes together.
        shared: Paths that every node must have access to.

    Raises:
        ConfigError: Ray is not installed, there is no such cluster, or its nodes differ from this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray, cluster = _module(), None
    if address is None:
        cluster = _started(workers)
        address = cluster.address
    else:
        _refuse_unreachable(address)
    try:
        try:
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise ConfigError(
                f"the cluster cannot be joined: {error}",
                where=address,
                allowed="a Ray cluster of the same versions of Ray and Python",
            ) from error
        _refuse_other_nodes(ray, shared)
        yield ray
    finally:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()


def _module() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "Ray is not installed here",
            where="--on",
            allowed="without Ray: --workers N, processes of this machine",
            advice=how_to_install("ray"),
        ) from error
    return ray


def _started(workers: int) -> Any:
    """Two nodes on this machine, on loopback only, as Ray starts them on systems where its clusters are disabled."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"  # for the nodes
    ray_constants.ENABLE_RAY_CLUSTER = False  # for this process, which has read the variable already

    each = {"node_ip_address": LOOPBACK, "object_store_memory": STORE_BYTES}
    head = each | {"num_cpus": max(1, workers // 2), "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(**each, num_cpus=max(1, workers - workers // 2))
    cluster.wait_for_nodes()
    return cluster


def _refuse_unreachable(address: str) -> None:
    parts = urlsplit(address)
    try:
        if not parts.hostname:
            raise ValueError("it names no host")
        with socket.create_connection((parts.hostname, parts.port or 10001), CONNECT_S):
            pass
    except (OSError, ValueError) as error:  # ValueError: of a port that is none
        raise ConfigError(
            f"the cluster is not reachable: {error}",
            where=address,
            allowed="ray://HOST:PORT of a running cluster",
            advice="ray start --head --ray-client-server-port PORT starts one",
        ) from error


def versions() -> dict[str, str]:
    """Versions that must be the same on every node: of Python, libraries, and this project's code."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found | {"schedtwin": _code_hash()}


def _code_hash() -> str:
    root = Path(__file__).parents[3]
    files = (file for package in PACKAGES for file in sorted((root / package).rglob("*.py")))
    return json_hash({file.relative_to(root).as_posix(): file_hash(file) for file in files})[:12]


def look_around(paths: Sequence[Path]) -> tuple[dict[str, str], list[Path]]:
    """A task: the versions of the node that it runs on, and the paths that do not exist there."""
    return versions(), [path for path in paths if not path.exists()]


def _refuse_other_nodes(ray: ModuleType, shared: Sequence[Path]) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    seen = [_existing(path.absolute()) for path in shared]
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    look = ray.remote(look_around)
    answers = {
        node: look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(seen)
        for node in names
    }
    for node, answer in answers.items():
        found, unseen = ray.get(answer)
        refuse_other_versions(versions(), found, names[node])
        if unseen:
            raise ConfigError(
                "a worker has no access to a path that it reads or writes",
                where=f"node {names[node]}: {first(unseen)}",
                allowed="paths that are the same on every node, such as a shared file system's",
            )


def refuse_other_versions(here: dict[str, str], there: dict[str, str], node: str) -> None:
    """ConfigError where a node's versions are not those of this machine."""
    other = [
        f"{name} {there.get(name)} there, {version} here"
        for name, version in here.items()
        if there.get(name) != version
    ]
    if other:
        raise ConfigError(
            f"a worker has other versions: {'; '.join(other)}",
            where=f"node {node}",
            allowed="the same everywhere",
            advice="install the same wheel and requirements.lock on every node",
        )


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())
