"""What every test stands on: strict JAX, a persistent compilation cache, fixed random examples, real logs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Through the environment, so that tests without JAX do not pay for its import and subprocesses inherit it.
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("MPLBACKEND", "agg")

from hypothesis import settings  # noqa: E402

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.load_profile("fixed")


@pytest.fixture(scope="module")
def light_compilation() -> Iterator[None]:
    """For modules that compile much and compute little: about half the compiler's work, and slower programs."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the project; the test is skipped, visibly, where there is none."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real logs: the folder ../shared/data is absent")
    return folder
