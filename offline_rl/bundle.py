"""The hand-over format of a policy: what the files of a bundle are called and hold. Needs NumPy only.

    contract.json   what a caller must keep to (`offline_rl.contract`)
    policy.npz      the network's arrays by layer, for NumPy (`offline_rl.numpy_networks`)
    policy.onnx     choices [batch, A, F] float32, context [batch, R] float32, legal [batch, A] bool
                    -> logits [batch, A] float32, action [batch] int64; A is free where the network is bound to none
    golden.npz      choices, context, legal, logits, action: what the original decided, to hold every copy against
    manifest.json   what it was made from, and the hash of every file

Illegal choices get the logit `MASKED_LOGIT`; the action is the first of the largest logits. Nothing is pickled.
"""

import zipfile
from pathlib import Path

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.contract import PolicyContract
from offline_rl.numpy_networks import wanted_shapes

KIND = "bundle"
"""Kind of the product in its manifest."""
TOLERANCE = 1e-4
"""How far a logit of a legal choice may be from the original's; relative where it is larger than 1."""

ARRAYS, GRAPH, GOLDEN = "policy.npz", "policy.onnx", "golden.npz"
GOLDEN_ARRAYS = ("choices", "context", "legal", "logits", "action")


def write_network(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes `policy.npz`."""
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)


def read_network(folder: Path, contract: PolicyContract) -> dict[str, np.ndarray]:
    """Reads `policy.npz` and checks it against the contract.

    Raises:
        ProductError: It cannot be read, or its layers are not those of the contract.
    """
    arrays = read_arrays(folder / ARRAYS)
    check_shapes(arrays, contract, where=str(folder / ARRAYS))
    return arrays


def check_shapes(arrays: dict[str, np.ndarray], contract: PolicyContract, *, where: str) -> None:
    """Makes sure that the arrays are the contract's network; raises ProductError where they are not."""
    found = {name: array.shape for name, array in arrays.items()}
    wanted = wanted_shapes(contract)
    if found != wanted:
        differing = sorted(
            name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
        )
        spelled = [f"{name} {found.get(name, 'missing')}" for name in differing]
        raise ProductError(
            "the network is not the one of the contract",
            where=f"{where}: {', '.join(spelled)}",
            allowed=", ".join(f"{name} {wanted.get(name, 'not at all')}" for name in differing),
            advice="export the policy again, with the features, widths and choices it was trained with",
        )


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


def read_golden(folder: Path) -> dict[str, np.ndarray]:
    """Reads `golden.npz`; raises ProductError where it is damaged or incomplete."""
    golden = read_arrays(folder / GOLDEN)
    if set(golden) != set(GOLDEN_ARRAYS) or not len(golden["action"]):
        raise ProductError(
            "the golden observations are incomplete",
            where=f"{folder / GOLDEN}: {sorted(golden)}",
            allowed=", ".join(GOLDEN_ARRAYS),
            advice="export the policy again",
        )
    return golden


def first_disagreement(logits: np.ndarray, action: np.ndarray, golden: dict[str, np.ndarray]) -> str:
    """How a copy of the policy differs from the original on the golden observations; empty if it does not.

    Args:
        logits: [batch, A] of the copy.
        action: [batch] of the copy.
        golden: The original's `legal`, `logits` and `action`.

    Returns:
        A sentence, or an empty text.
    """
    allowed = TOLERANCE * np.maximum(1.0, np.abs(golden["logits"]))
    away = np.where(golden["legal"], np.abs(logits - golden["logits"]) / allowed, 0.0)
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
