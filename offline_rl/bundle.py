"""The hand-over format of a policy: what the files of a bundle are called and hold. Needs NumPy only.

    contract.json   what a caller must keep to (`offline_rl.contract`)
    policy.npz      the network's arrays by layer, for NumPy (`offline_rl.numpy_networks`)
    policy.onnx     choices [batch, A, F] float32, context [batch, R] float32, legal [batch, A] bool
                    -> logits [batch, A] float32, action [batch] int64; A is free where the network is bound to none
    golden.npz      choices, context, legal, logits, action: what the original decided, to hold every copy against
    questions.json  plain descriptions, of placement and ordering; the first rows of golden.npz are what they become
    manifest.json   what it was made from, and the hash of every file

Illegal choices get the logit `MASKED_LOGIT`; the action is the first of the largest logits. Nothing is pickled.
"""

import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from logs_schema.errors import ProductError
from logs_schema.product import Manifest, read_manifest
from offline_rl.contract import PolicyContract, read_contract, refusing
from offline_rl.numpy_networks import wanted_shapes
from offline_rl.numpy_rules import LATER_NUMBERS
from twin.problems import ASSIGNMENT, AUTOSCALING

KIND, SCALING_KIND, ASSIGNMENT_KIND = "bundle", "scaling-bundle", "assignment-bundle"
"""Kinds of products in their manifests: choices among nodes, jobs and replicas; grants of deployments; edges of many
requests at once."""
RUN_BY = {
    KIND: "schedtwin serve, or schedtwin orchestrate",
    SCALING_KIND: "schedtwin autoscale",
    ASSIGNMENT_KIND: "schedtwin serve",
}
"""Kind -> who runs it."""
PROBLEMS = {SCALING_KIND: AUTOSCALING, ASSIGNMENT_KIND: ASSIGNMENT}
"""Kind -> problem, where a kind has one; else the contract says which."""
TOLERANCE = 1e-4
"""How far a logit of a legal choice may be from the original's; relative where it is larger than 1."""

ARRAYS, GRAPH, GOLDEN, QUESTIONS = "policy.npz", "policy.onnx", "golden.npz", "questions.json"
GOLDEN_ARRAYS = {"choices": "f", "context": "f", "legal": "b", "logits": "f", "action": "i"}
"""Name -> kind of its numbers."""
MIN_GOLDEN, MAX_GOLDEN = 32, 100_000
"""Golden rows of a bundle."""
MIN_SEVERAL = 0.25
"""Least share of golden rows in which several choices are legal; where there is one choice only, none needs to be."""
MAX_BYTES = 1024**3
"""What a bundle's files may take, and what its arrays may unpack to."""
_HEADER_BYTES, _MAX_ARRAYS = 10_000, 1_000
"""The longest header of an array that NumPy reads, and the arrays of a file."""


def kind_of(folder: Path) -> str | None:
    """Which kind of bundle a folder holds; None where it holds none."""
    try:
        found = read_manifest(folder).kind
    except ProductError:
        return None
    return found if found in RUN_BY else None


def read_bundle(folder: Path) -> Manifest:
    """The manifest of a bundle of any kind; ProductError where there is none."""
    return read_manifest(folder, kind_of(folder) or KIND)


class BundleOrigin(NamedTuple):
    """What a bundle of any kind was made from.

    Attributes:
        problem: What it decides.
        first_day, last_day: ISO dates of its training days; empty where it names none.
        certificate: Content hash of the certificate that its twin passed; None without.
    """

    problem: str
    first_day: str
    last_day: str
    certificate: str | None


def origin_of(folder: Path) -> BundleOrigin:
    """What a bundle was made from; ProductError where there is none, or its contract is damaged."""
    manifest = read_bundle(folder)
    if manifest.kind in PROBLEMS:
        days = sorted(map(str, manifest.extra.get("train_days") or ()))
        ends = (days[0], days[-1]) if days else ("", "")
        return BundleOrigin(PROBLEMS[manifest.kind], *ends, manifest.extra.get("certificate"))
    contract = read_contract(folder)
    first, last = (str(contract.trained_on.get(name) or "") for name in ("first_day", "last_day"))
    return BundleOrigin(contract.problem, first, last, contract.certificate)


def refuse_other_kind(folder: Path, kind: str) -> None:
    """ProductError for a bundle of another kind, which says of which problem it is, and what runs it."""
    found = kind_of(folder)
    if found is not None and found != kind:
        raise ProductError(
            f"this bundle is of the problem '{origin_of(folder).problem}'",
            where=str(folder),
            allowed=f"a bundle of {PROBLEMS.get(kind, 'placement, ordering or orchestration')}",
            advice=f"{RUN_BY[found]} runs this one",
        )


def write_network(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes `policy.npz`."""
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)


def read_network(folder: Path, contract: PolicyContract) -> dict[str, np.ndarray]:
    """Reads `policy.npz` and checks it against the contract.

    Raises:
        ProductError: It cannot be read, or its layers are not those of the contract, or hold other than numbers.
    """
    path, wanted = folder / ARRAYS, wanted_shapes(contract)
    arrays = read_arrays(path, max_bytes=min(8 * sum(map(prod, wanted.values())), MAX_BYTES))
    for name, shape in wanted.items():
        rule, _, number = name.rpartition("/")
        if number in LATER_NUMBERS.get(rule, ()):  # earlier bundles have none
            arrays.setdefault(name, np.zeros(shape, np.float32))
    check_shapes(arrays, contract, where=str(path))
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays.values()):
        raise ProductError(
            "the network's numbers are not finite", where=str(path), advice="export the policy again"
        )
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


def read_arrays(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, np.ndarray]:
    """The arrays of an npz file, without pickle; what it unpacks to is bounded before anything is unpacked.

    Args:
        path: The file.
        max_bytes: What the arrays may take, their headers aside.

    Raises:
        ProductError: The file is missing or damaged, holds objects, or is too large.
    """
    arrays = {}
    with refusing("the arrays cannot be read", path), zipfile.ZipFile(path) as file:
        members = file.infolist()
        num_bytes = sum(max(member.file_size - _HEADER_BYTES, 0) for member in members)
        if num_bytes > max_bytes or len(members) > _MAX_ARRAYS:
            raise ValueError(f"{len(members)} arrays of {num_bytes:,} bytes, allowed {max_bytes:,}")
        for member in members:
            with file.open(member) as stream:
                _refuse_other_length(stream, member.file_size)
                stream.seek(0)
                arrays[member.filename.removesuffix(".npy")] = npy.read_array(stream, allow_pickle=False)
    return arrays


def _refuse_other_length(stream: IO[bytes], num_bytes: int) -> None:
    """Makes sure that an array's header matches its number of bytes; ValueError where not."""
    read_header = npy.read_array_header_2_0 if npy.read_magic(stream)[0] > 1 else npy.read_array_header_1_0
    shape, _, dtype = read_header(stream)
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != num_bytes - stream.tell():
        raise ValueError(f"an array of shape {shape} and type {dtype} in {num_bytes:,} bytes")


def read_golden(folder: Path, contract: PolicyContract) -> dict[str, np.ndarray]:
    """Reads `golden.npz`.

    Raises:
        ProductError: It is damaged, or not made of so many golden observations of the contract's features as prove
            something: enough rows, each with a legal choice, some with several.
    """
    path, (num_choices, num_features, num_context) = folder / GOLDEN, contract.widths
    of_row = {
        "choices": (num_choices, num_features),
        "context": (num_context,),
        "legal": (num_choices,),
        "logits": (num_choices,),
        "action": (),
    }
    row_bytes = 8 * sum(map(prod, of_row.values()))
    golden = read_arrays(path, max_bytes=min(MAX_GOLDEN * row_bytes, MAX_BYTES))
    found = {name: (array.shape[1:], array.dtype.kind) for name, array in golden.items()}
    wanted = {name: (of_row[name], kind) for name, kind in GOLDEN_ARRAYS.items()}
    if found != wanted or len({len(array) for array in golden.values()}) != 1:
        trouble = f"found {', '.join(f'{name} {list(array.shape)}' for name, array in golden.items())}"
    elif trouble := _proves_nothing(golden):
        pass
    else:
        return golden
    raise ProductError(
        "the golden observations do not prove the policy",
        where=f"{path}: {trouble}",
        allowed=f"{', '.join(GOLDEN_ARRAYS)} of {MIN_GOLDEN} to {MAX_GOLDEN:,} rows, with a legal choice in each and "
        f"several in {MIN_SEVERAL:.0%}",
        advice="export the policy again",
    )


def _proves_nothing(golden: Mapping[str, np.ndarray]) -> str:
    """Why golden rows prove nothing; empty where they do."""
    num_rows, legal, action = len(golden["action"]), golden["legal"], golden["action"]
    if not MIN_GOLDEN <= num_rows <= MAX_GOLDEN:
        return f"{num_rows} rows"
    if not (np.all((action >= 0) & (action < legal.shape[1])) and legal[np.arange(num_rows), action].all()):
        return "a golden decision is not legal"
    is_several = legal.sum(axis=1) > 1
    if legal.shape[1] > 1 and is_several.mean() < MIN_SEVERAL:
        return f"several choices are legal in {int(is_several.sum())} of {num_rows} rows"
    return ""


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
    rows = np.arange(len(action))
    best, taken = (golden["logits"][rows, chosen] for chosen in (golden["action"], action))
    # Else it is rounding
    differs = np.flatnonzero(np.abs(best - taken) > 2 * allowed[rows, golden["action"]])
    if len(differs):
        row = int(differs[0])
        return (
            f"golden row {row}: decides {action[row]}, the original {golden['action'][row]}"
            f" ({len(differs)} of {len(action)} rows)"
        )
    return ""
