"""Bundles loaded: verified, read, and replayed against their goldens, arrays and plain questions alike.

Everything is verified before it is used: names and sizes of files, their hashes, the contract, the network, and that it
decides on the golden observations, and on plain descriptions by the whole path, as the original did. A replaced
bundle may replace all of this together; only the content hash that its maker published (`expect`), or its maker's
signature (`trust`), reveals that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from logs_schema.errors import ProductError
from logs_schema.options import checked_path
from offline_rl.bundle import KIND, read_golden, read_network
from offline_rl.contract import RULES, NetworkFacts, read_contract, refusing
from offline_rl.numpy_networks import numpy_network
from offline_rl.numpy_rules import standing_in
from offline_rl.runner.network import ExportedPolicy, from_arrays, from_graph, replay_golden
from offline_rl.runner.policy import Policy
from offline_rl.runner.questions import answering_of, read_questions, replay_questions
from offline_rl.runner.queue import QueuePolicy
from offline_rl.signing import verified, verified_while

Backend = Literal["numpy", "onnx"]


def load(
    folder: Path | str, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> Policy:
    """Loads a placement policy; arguments and errors as for `load_network`.

    Raises:
        ProductError: Also where the bundle decides something else than placements.
    """
    return Policy(load_network(folder, backend, expect=expect, trust=trust))


def load_queue(
    folder: Path | str, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> QueuePolicy:
    """Loads an ordering policy; arguments and errors as for `load_network`.

    Raises:
        ProductError: Also where the bundle decides something else than orders.
    """
    return QueuePolicy(load_network(folder, backend, expect=expect, trust=trust))


def load_network(
    folder: Path | str, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> ExportedPolicy:
    """Loads a bundle of any problem, after checking every hash and replaying its golden decisions.

    Args:
        folder: The bundle's folder.
        backend: `numpy`, or `onnx` (needs onnxruntime).
        expect: The content hash that it must have, as published by its maker; None accepts any.
        trust: PEM file of the public key that it must be signed with (`offline_rl.signing`); None: any.

    Returns:
        The policy as a function of arrays.

    Raises:
        ConfigError: An argument is no path.
        ProductError: No bundle there, another one than expected, not signed with the trusted key, a file is missing,
            altered, foreign, damaged or replaced meanwhile, the bundle is of another version, the backend is not known
            or not installed, or its decisions are not those of the original.
    """
    folder = checked_path("folder", folder, "load")
    with network_while(folder, backend, expect=expect, trust=trust) as policy:
        return policy


@contextmanager
def network_while(
    folder: Path, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> Iterator[ExportedPolicy]:
    """The policy of `load_network` while what else its bundle holds is read: verified in whole before and after."""
    trust = None if trust is None else checked_path("trust", trust, "load")
    builders = {"numpy": from_arrays, "onnx": from_graph}
    if backend not in builders:
        raise ProductError(f"unknown backend '{backend}'", allowed=", ".join(builders))
    with (
        refusing("the bundle cannot be read", folder),
        verified_while(folder, KIND, expect=expect, trust=trust) as content_hash,
    ):
        contract = read_contract(folder)
        policy = ExportedPolicy(contract, content_hash, builders[backend](folder, contract))
        prove(policy, folder)
        yield policy


def own_rule(policy: Policy, folder: Path) -> Policy | None:
    """The rule that a loaded bundle holds for where its policy does not answer; None where it holds none."""
    rule = standing_in(policy.contract)
    if rule not in RULES:
        return None
    numbers = read_network(folder, policy.contract)
    verified(folder, KIND, expect=policy.content_hash)
    numbers = {name: array for name, array in numbers.items() if name.startswith(f"{rule}/")}
    contract = replace(policy.contract, network=NetworkFacts(rule, ()))
    return Policy(ExportedPolicy(contract, policy.content_hash, numpy_network(numbers, contract)))


def prove(policy: ExportedPolicy, folder: Path) -> None:
    """Compares a policy with the goldens in a folder; ProductError where it decides otherwise."""
    golden = read_golden(folder, policy.contract)
    replay_golden(policy, golden, where=str(folder))
    answer = answering_of(policy)
    if answer is not None:
        replay_questions(answer, read_questions(folder), golden, where=str(folder))
