"""The hand-over format of a policy: what the files of a bundle are called and what they say. Needs NumPy
only.

    contract.json   features (order, names, units), actions, legality, layers: what a caller must keep to
    policy.npz      kernel_0 [inputs, width], bias_0 [width], kernel_1, ...: the same network for NumPy
    policy.onnx     features [batch, F] float32, legal [batch, A] bool -> logits [batch, A] float32, action
    [batch] int64 golden.npz      features, legal, logits, action: what the original decided, to hold every
    copy against manifest.json   what it was made from, and the hash of every file

The network is an MLP: `h = relu(h @ kernel + bias)`, the last layer without the relu; illegal choices get the
logit `MASKED_LOGIT`; the action is the first of the largest logits.
"""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from logs_schema.errors import ProductError

KIND = "bundle"
"""Kind of the product in its manifest."""
SCHEMA_VERSION = 1
"""Version of the bundle's files."""
MASKED_LOGIT = -1e9
"""Logit of an illegal choice; the same as in training."""
TOLERANCE = 1e-4
"""How far a logit of a legal choice may be from the original's; relative where it is larger than 1."""

CONTRACT, ARRAYS, GRAPH, GOLDEN = "contract.json", "policy.npz", "policy.onnx", "golden.npz"


@dataclass(frozen=True)
class PolicyContract:
    """What a caller of the policy must know.

    Attributes:
        features: (name, unit) of every feature, in order.
        actions: Name of every choice, in order.
        legality: When a choice is legal, in words: the caller computes the mask.
        hidden: Widths of the hidden layers.
        activation: Of the hidden layers.
        schema_version: Version of the bundle's files.
    """

    features: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]
    legality: str
    hidden: tuple[int, ...]
    activation: str = "relu"
    schema_version: int = SCHEMA_VERSION

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features, hidden widths, number of actions."""
        return (len(self.features), *self.hidden, len(self.actions))


class Layers:
    """The network as NumPy arrays.

    Args:
        kernels: [inputs, outputs] of every layer, float32.
        biases: [outputs] of every layer, float32.
    """

    def __init__(self, kernels: Sequence[np.ndarray], biases: Sequence[np.ndarray]) -> None:
        self.kernels = [np.ascontiguousarray(kernel, np.float32) for kernel in kernels]
        self.biases = [np.ascontiguousarray(bias, np.float32) for bias in biases]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of inputs and the width of every layer."""
        return (self.kernels[0].shape[0], *(len(bias) for bias in self.biases))

    def logits(self, features: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Masked logits [batch, actions] of `features` [batch, F] float32 under `legal` [batch, actions]
        bool."""
        values = features
        for index, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            values = values @ kernel + bias
            if index < len(self.kernels) - 1:
                values = np.maximum(values, 0.0)
        return np.where(legal, values, np.float32(MASKED_LOGIT))


def write_contract(folder: Path, contract: PolicyContract) -> None:
    """Writes `contract.json`."""
    facts = asdict(contract)
    facts["features"] = [{"name": name, "unit": unit} for name, unit in contract.features]
    (folder / CONTRACT).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_contract(folder: Path) -> PolicyContract:
    """Reads `contract.json`.

    Raises:
        ProductError: It is missing, damaged, of another version, or of a kind of network unknown here.
    """
    path = folder / CONTRACT
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts["schema_version"]
        if version == SCHEMA_VERSION:
            features = tuple((one["name"], one["unit"]) for one in facts.pop("features"))
            actions, hidden = tuple(facts.pop("actions")), tuple(facts.pop("hidden"))
            contract = PolicyContract(features=features, actions=actions, hidden=hidden, **facts)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ProductError(
            "the bundle's contract cannot be read",
            where=f"{path}: {type(error).__name__}: {error}",
            advice="export the policy again",
        ) from error
    if version != SCHEMA_VERSION:
        raise ProductError(
            f"the bundle is of version {version}",
            where=str(path),
            allowed=f"version {SCHEMA_VERSION}",
            advice="use the runner that came with it, or export the policy again",
        )
    if contract.activation != "relu":
        raise ProductError(f"unknown activation '{contract.activation}'", where=str(path), allowed="relu")
    return contract


def write_layers(folder: Path, layers: Layers) -> None:
    """Writes `policy.npz`."""
    arrays = {f"kernel_{index}": kernel for index, kernel in enumerate(layers.kernels)}
    arrays |= {f"bias_{index}": bias for index, bias in enumerate(layers.biases)}
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)


def read_layers(folder: Path, contract: PolicyContract) -> Layers:
    """Reads `policy.npz` and checks it against the contract.

    Raises:
        ProductError: It cannot be read, or its layers are not those of the contract.
    """
    arrays = read_arrays(folder / ARRAYS)
    num_layers = len(contract.hidden) + 1
    names = [f"{part}_{index}" for part in ("kernel", "bias") for index in range(num_layers)]
    shapes = {name: array.shape for name, array in arrays.items()}
    widths = contract.widths
    wanted = {f"kernel_{index}": widths[index : index + 2] for index in range(num_layers)}
    wanted |= {f"bias_{index}": widths[index + 1 : index + 2] for index in range(num_layers)}
    if shapes != wanted:
        raise ProductError(
            "the network is not the one of the contract",
            where=f"{folder / ARRAYS}: {shapes}",
            allowed=str(wanted),
            advice="export the policy again",
        )
    ordered = [arrays[name] for name in names]
    return Layers(ordered[:num_layers], ordered[num_layers:])


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, without pickle.

    Raises:
        ProductError: The file is missing or damaged, or holds objects.
    """
    try:
        with path.open("rb") as source, np.load(source, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ProductError(
            "the arrays cannot be read", where=f"{path}: {error}", advice="make the product again"
        ) from error


def first_disagreement(
    logits: np.ndarray, action: np.ndarray, golden: dict[str, np.ndarray], legal: np.ndarray
) -> str:
    """How a copy of the policy differs from the original on the golden observations; empty if it does not.

    Args:
        logits: [batch, actions] of the copy.
        action: [batch] of the copy.
        golden: The original's `logits` and `action`.
        legal: [batch, actions] bool.

    Returns:
        A sentence, or an empty text.
    """
    allowed = TOLERANCE * np.maximum(1.0, np.abs(golden["logits"]))
    away = np.where(legal, np.abs(logits - golden["logits"]) / allowed, 0.0)
    if not np.all(away <= 1.0):  # written so that a NaN is a disagreement
        row = int(np.argmax(~np.all(away <= 1.0, axis=1)))
        times = np.nanmax(np.append(away[row], 0.0))
        return f"the logits of golden row {row} are {times:.2g} times the tolerance of {TOLERANCE:g} away"
    differs = np.flatnonzero(action != golden["action"])
    if len(differs):
        row = int(differs[0])
        return (
            f"golden row {row}: decides {action[row]}, the original {golden['action'][row]}"
            f" ({len(differs)} of {len(action)} rows)"
        )
    return ""
