"""What is compiled computes what it says: wide reductions against known answers, with the compiler's optimisations."""

import os
import subprocess
import sys

SUMS = """
import twin
import jax
import jax.numpy as jnp

rows = jnp.zeros((32_769, 3)).at[:, 0].set(jnp.arange(32_769.0))
squares = lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)
print(int(jax.jit(jax.vmap(squares))(rows)[-1]))
"""


def test_wide_reductions_are_right() -> None:
    """They were wrong by a hundredth with jaxlib 0.10.2 as it comes."""
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", SUMS], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 32_768**2
