"""A bundle's network as a function of arrays, for any problem; `offline_rl.runner.loading` proves it first.

Pin the threads of NumPy's matrix product to one (`OPENBLAS_NUM_THREADS=1`) where latency matters; the network
is small, and waiting threads cost more than they bring.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.extras import how_to_install
from offline_rl.bundle import GRAPH, first_disagreement, read_network
from offline_rl.contract import PolicyContract
from offline_rl.errors import PolicyInputError
from offline_rl.numpy_networks import Network, numpy_network

NOTHING_LEGAL = -1
"""The decision where no choice is legal."""
BATCH_ROWS = 4096
"""Golden rows that are compared at a time: bounds the memory."""


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy that decides from arrays.

    Attributes:
        contract: Names, units and order of features and choices.
        content_hash: Of the bundle it came from.
        network: The unchecked network.
    """

    contract: PolicyContract
    content_hash: str
    network: Network

    def logits(self, choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Masked logits.

        Args:
            choices: [batch, A, F] features of every choice, in the contract's order and units, finite; A is the
                contract's number of choices, or any where the network is bound to none.
            context: [batch, R] features that all choices share.
            legal: [batch, A] bool.

        Returns:
            [batch, A] float32, `MASKED_LOGIT` where illegal.

        Raises:
            PolicyInputError: Shapes or types are not the contract's, or a feature is not finite.
        """
        choices, context, legal = self._checked(choices, context, legal)
        return self.network(choices, context, legal) if legal.size else np.zeros(legal.shape, np.float32)

    def decide(self, choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """The likeliest legal choice.

        Returns:
            [batch] int64 index of the choice; `NOTHING_LEGAL` where no choice is legal.

        Raises:
            PolicyInputError: As `logits`.
        """
        choices, context, legal = self._checked(choices, context, legal)
        if not legal.size:
            return np.full(len(legal), NOTHING_LEGAL)
        best = np.argmax(self.network(choices, context, legal), axis=1)
        return np.where(legal.any(axis=1), best, NOTHING_LEGAL)

    def _checked(
        self, choices: np.ndarray, context: np.ndarray, legal: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        choices, context = (np.ascontiguousarray(one, np.float32) for one in (choices, context))
        legal = np.asarray(legal)
        num_choices, num_features, num_context = self.contract.widths
        if self.contract.network.any_choices and legal.ndim == 2:
            num_choices = legal.shape[1]
        batch = len(context) if context.ndim == 2 else -1
        shapes = choices.shape, context.shape, legal.shape
        wanted = (batch, num_choices, num_features), (batch, num_context), (batch, num_choices)
        if shapes != wanted or legal.dtype != bool:
            raise PolicyInputError(
                "the policy cannot decide on arrays of these shapes",
                where=f"choices {shapes[0]}, context {shapes[1]}, legal {shapes[2]} {legal.dtype}",
                allowed=f"[batch, {num_choices}, {num_features}], [batch, {num_context}], [batch, {num_choices}] bool",
            )
        self._refuse_infinite(choices.reshape(-1, num_features), context)
        return choices, context, legal

    def _refuse_infinite(self, choices: np.ndarray, context: np.ndarray) -> None:
        pairs = (choices, self.contract.choice_features), (context, self.contract.context_features)
        for values, facts in pairs:
            if np.isfinite(values).all():
                continue
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise PolicyInputError(
                "a feature is not finite",
                where=f"row {row}, feature '{facts[column].name}' [{facts[column].unit}]",
                advice="compute the features as in the contract; unknown durations are not infinite",
            )


def replay_golden(policy: ExportedPolicy, golden: Mapping[str, np.ndarray], *, where: str) -> None:
    """Compares a policy with golden observations (see `offline_rl.bundle`).

    Raises:
        ProductError: A decision differs, or a logit by more than the tolerance.
    """
    for first in range(0, len(golden["action"]), BATCH_ROWS):
        rows = {name: array[first : first + BATCH_ROWS] for name, array in golden.items()}
        seen = rows["choices"], rows["context"], rows["legal"]
        try:
            trouble = first_disagreement(policy.logits(*seen), policy.decide(*seen), rows)
        except PolicyInputError as error:
            trouble = str(error)
        if trouble:
            raise differs(where, trouble)


def differs(where: str, trouble: str) -> ProductError:
    """The error for a bundle that does not decide as what it was made from."""
    return ProductError(
        "the exported policy does not decide as the original",
        where=f"{where}: {trouble}",
        advice="export the policy again; if it stays, report the versions of numpy and onnxruntime",
    )


def from_arrays(folder: Path, contract: PolicyContract) -> Network:
    """The network of a bundle in NumPy; raises ProductError where its arrays are not those of the
    contract."""
    return numpy_network(read_network(folder, contract), contract)


def from_graph(folder: Path, contract: PolicyContract) -> Network:
    """The network of a bundle in ONNX Runtime; ProductError as of `graph_session`."""
    num_choices, num_features, num_context = contract.widths
    free = "choices" if contract.network.any_choices else num_choices
    wanted: dict[str, list[str | int]] = {
        "choices": ["batch", free, num_features],
        "context": ["batch", num_context],
    }
    session = graph_session(folder, wanted | {"legal": ["batch", free]})

    def network(choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        (logits,) = session.run(["logits"], {"choices": choices, "context": context, "legal": legal})
        return np.asarray(logits)

    return network


def graph_session(folder: Path, wanted: Mapping[str, Sequence[str | int]]) -> Any:
    """A bundle's graph in ONNX Runtime, on one thread.

    Args:
        folder: Of the bundle.
        wanted: Name of every input -> its shape; it must give `logits`.

    Raises:
        ProductError: onnxruntime is missing, cannot read the graph, or its inputs are others.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ProductError(
            "the onnx backend needs onnxruntime, which is not installed",
            advice=f"{how_to_install('runner')}; or load the bundle with backend='numpy'",
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
    found = {one.name: one.shape for one in session.get_inputs()}
    if found != wanted or "logits" not in [one.name for one in session.get_outputs()]:
        raise ProductError(
            "the graph is not the one of the contract",
            where=f"{folder / GRAPH}: {found}, gives {[one.name for one in session.get_outputs()]}",
            allowed=f"{wanted}, gives logits",
            advice="export the policy again",
        )
    return session
