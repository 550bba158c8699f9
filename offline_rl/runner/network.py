"""Runs an exported policy without the training stack: NumPy, or ONNX Runtime where it is installed. No JAX.

Pin the threads of NumPy's matrix product to one (`OPENBLAS_NUM_THREADS=1`) where latency matters; the network
is small, and waiting threads cost more than they bring.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.product import verify
from offline_rl.bundle import (
    GOLDEN,
    GRAPH,
    KIND,
    PolicyContract,
    first_disagreement,
    read_arrays,
    read_contract,
    read_layers,
)
from offline_rl.errors import PolicyInputError

NOTHING_LEGAL = -1
"""The decision where no choice is legal."""

Network = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy that decides from features and a legality mask.

    Attributes:
        contract: Names, units and order of features and actions.
        content_hash: Of the bundle it came from.
        network: (features [batch, F] float32, legal [batch, A] bool) -> masked logits [batch, A] float32.
    """

    contract: PolicyContract
    content_hash: str
    network: Network

    def logits(self, features: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Masked logits.

        Args:
            features: [batch, F] in the contract's order and units, finite.
            legal: [batch, A] bool.

        Returns:
            [batch, A] float32, `MASKED_LOGIT` where illegal.

        Raises:
            PolicyInputError: Shapes or types are not the contract's, or a feature is not finite.
        """
        return self.network(*self._checked(features, legal))

    def decide(self, features: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """The likeliest legal choice.

        Args:
            features: [batch, F] in the contract's order and units, finite.
            legal: [batch, A] bool.

        Returns:
            [batch] int64 index into `contract.actions`; `NOTHING_LEGAL` where no choice is legal.

        Raises:
            PolicyInputError: As `logits`.
        """
        features, legal = self._checked(features, legal)
        best = np.argmax(self.network(features, legal), axis=1)
        return np.where(legal.any(axis=1), best, NOTHING_LEGAL)

    def _checked(self, features: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        features, legal = np.asarray(features, np.float32), np.asarray(legal)
        num_features, num_actions = len(self.contract.features), len(self.contract.actions)
        wanted = f"features [batch, {num_features}] and legal [batch, {num_actions}] bool"
        rows = features.shape[0] if features.ndim == 2 else -1
        if (
            features.shape != (rows, num_features)
            or legal.shape != (rows, num_actions)
            or legal.dtype != bool
        ):
            raise PolicyInputError(
                "the policy cannot decide on arrays of these shapes",
                where=f"features {list(features.shape)}, legal {list(legal.shape)} {legal.dtype}",
                allowed=wanted,
            )
        bad = np.argwhere(~np.isfinite(features))
        if len(bad):
            row, column = bad[0]
            name, unit = self.contract.features[column]
            raise PolicyInputError(
                "a feature is not finite",
                where=f"row {row}, feature '{name}' [{unit}] ({len(bad)} values in all)",
                advice="compute the features as the contract says; unknown durations are not infinite",
            )
        return features, legal


def load(folder: Path | str, backend: Literal["numpy", "onnx"] = "numpy") -> ExportedPolicy:
    """Loads a bundle, after checking every hash and replaying its golden observations.

    Args:
        folder: The bundle.
        backend: `numpy`, or `onnx` (needs onnxruntime; the fastest).

    Returns:
        The policy.

    Raises:
        ProductError: No bundle there, a file is missing, altered or damaged, the bundle is of another
            version, the backend is not known or not installed, or its decisions are not those of the
            original.
    """
    folder = Path(folder)
    builders = {"numpy": numpy_network, "onnx": onnx_network}
    if backend not in builders:
        raise ProductError(f"unknown backend '{backend}'", allowed=", ".join(builders))
    manifest = verify(folder, KIND)
    contract = read_contract(folder)
    policy = ExportedPolicy(contract, manifest.content_hash, builders[backend](folder, contract))
    replay_golden(policy, folder)
    return policy


def replay_golden(policy: ExportedPolicy, folder: Path) -> None:
    """Holds a policy against the golden observations of a bundle.

    Raises:
        ProductError: A decision differs, or a logit by more than the tolerance, or the goldens cannot be
            read.
    """
    golden = read_arrays(folder / GOLDEN)
    if set(golden) != {"features", "legal", "logits", "action"}:
        raise ProductError(
            "the golden observations are incomplete", where=f"{folder / GOLDEN}: {sorted(golden)}"
        )
    features, legal = golden["features"], golden["legal"]
    trouble = first_disagreement(
        policy.logits(features, legal), policy.decide(features, legal), golden, legal
    )
    if trouble:
        raise ProductError(
            "the exported policy does not decide as the original",
            where=f"{folder}: {trouble}",
            advice="export the policy again; if it stays, tell the versions of numpy and onnxruntime",
        )


def numpy_network(folder: Path, contract: PolicyContract) -> Network:
    """The network of a bundle in NumPy; raises ProductError where its arrays are not those of the
    contract."""
    return read_layers(folder, contract).logits


def onnx_network(folder: Path, contract: PolicyContract) -> Network:
    """The network of a bundle in ONNX Runtime, on one thread.

    Raises:
        ProductError: onnxruntime is missing, cannot read the graph, or its inputs are not those of the
            contract.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ProductError(
            "the onnx backend needs onnxruntime, which is not installed",
            advice="pip install 'schedtwin[onnx]', or load the bundle with backend='numpy'",
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            (folder / GRAPH).read_bytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's own errors have no common base
        raise ProductError(
            "ONNX Runtime cannot read the graph",
            where=f"{folder / GRAPH}: {error}",
            advice="export the policy again, or load the bundle with backend='numpy'",
        ) from error
    shapes = {one.name: one.shape[-1] for one in session.get_inputs()}
    if shapes != {"features": len(contract.features), "legal": len(contract.actions)}:
        raise ProductError("the graph is not the one of the contract", where=f"{folder / GRAPH}: {shapes}")

    def network(features: np.ndarray, legal: np.ndarray) -> np.ndarray:
        (logits,) = session.run(["logits"], {"features": features, "legal": legal})
        return np.asarray(logits)

    return network
