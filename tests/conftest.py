"""What every test stands on: strict JAX, a persistent compilation cache, fixed random examples, real logs."""

import gc
import os
import sys
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import get_ident
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Through the environment, so that tests without JAX do not pay for its import and subprocesses inherit it.
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("MPLBACKEND", "agg")
# A program in one piece takes less of the processor than one cut up.
os.environ["XLA_FLAGS"] = f"--xla_cpu_parallel_codegen_split_count=1 {os.environ.get('XLA_FLAGS', '')}"
# A worker computes on one thread: idle ones of its pool, looking for work, take the processor from the other worker.
os.environ.setdefault("NPROC", "1")
# Ten frames of Python kept for each operation of each program are read by nobody here.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

from hypothesis import settings  # noqa: E402

settings.register_profile("fixed", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Every second worker imports the tests from the last one on: in a fresh clone each compiles half of the bytecode.

    What cannot be imported is reported when it is collected.
    """
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2 == 0:
        return
    folders = [session.config.invocation_params.dir / argument for argument in session.config.args]
    files = {file for folder in folders if folder.is_dir() for file in folder.rglob("test_*.py")}
    for file in sorted(files, reverse=True):
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What is imported stays: the collector need not look through it again and again while programs are traced."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@lru_cache(maxsize=1)
def share_contexts() -> None:
    """A hundred programs of a thread are lowered in one context, as a new one costs a third of a small program.

    Neither larger ones nor the results are touched: a context holds types and attributes, which never change.
    """
    with suppress(ImportError, AttributeError):  # inside JAX, and so perhaps elsewhere one day
        from jax._src.interpreters import mlir

        new, programs = mlir.make_ir_context, count()
        kept = lru_cache(maxsize=4)(lambda hundred, thread: new())
        mlir.make_ir_context = lambda: kept(next(programs) // 100, get_ident())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Quick tests compile much and compute little: their programs are small and left unoptimised, at a third of the
    compiler's work.

    Not so in slow tests. This runs before any fixture of the test; subprocesses inherit the variable.
    """
    light = item.get_closest_marker("slow") is None
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(light))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_disable_most_optimizations", light)
        share_contexts()
    if slots := sys.modules.get("twin.placement.slots"):
        shipped = _unrolled_as_shipped(slots)
        slots.MAX_UNROLLED = 2 if light else shipped


@cache
def _unrolled_as_shipped(slots: ModuleType) -> int:
    """The module's value before the first test changed it."""
    return slots.MAX_UNROLLED


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the project; the test is skipped, visibly, where there is none."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real logs: the folder ../shared/data is absent")
    return folder
