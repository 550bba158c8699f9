"""Host callbacks for policies that JAX cannot trace."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.named import RAISED, error_in_words
from twin.contracts import Policy


class WrongAnswerError(TypeError):
    """A policy returns something else than whole numbers of the required shape."""

    def __init__(self, answer: Any, shape: tuple[int, ...]) -> None:
        super().__init__(f"returns {form_of(answer)} where whole numbers {list(shape)} are required")


class HostPolicy:
    """A policy of plain NumPy that compiled programs can call; its key is two 32-bit words.

    A compiled program cannot raise, so the first error is kept; later calls return zeros, and the result is discarded.

    Attributes:
        error: The first error that the policy raised, or None.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.error: BaseException | None = None

    def __call__(self, key: Any, observation: Any, legal: Any) -> Any:
        """As a `Policy`."""
        answer = jax.ShapeDtypeStruct(legal.shape[1:], jnp.int32)
        words = jax.random.key_data(key)
        return jax.pure_callback(self._call, answer, words, observation, legal, vmap_method="sequential")

    def _call(self, words: np.ndarray, observation: Any, legal: np.ndarray) -> np.ndarray:
        arrays = jax.tree.map(np.asarray, (words, observation, legal))
        nothing = np.zeros(legal.shape[1:], np.int32)
        if self.error is not None:
            return nothing
        try:
            answer = self._policy(*arrays)
            action = np.asarray(answer)
            if action.shape != nothing.shape or not np.issubdtype(action.dtype, np.integer):
                raise WrongAnswerError(answer if action.dtype == object else action, nothing.shape)
        except RAISED as error:  # of a function of the user's: anything
            self.error = error
            return nothing
        return np.clip(action, -1, len(legal)).astype(np.int32)  # neither end is legal


def failure_in_words(error: BaseException) -> str:
    """What a policy did that failed: it returned something wrong, or raised an error."""
    return str(error) if isinstance(error, WrongAnswerError) else f"raised {error_in_words(error)}"


def form_of(value: Any) -> str:
    """Type and shape of a value for messages."""
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
