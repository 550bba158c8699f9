"""Environment variables of the compiler, set before it first runs: it reads the environment only then.

From jaxlib 0.10.2 on, XLA hands reductions over some ten thousand elements and more to another library on processors,
and what came back was wrong and changed from call to call (jax issues 39103 and 39257). The locked version is older;
where a machine has a newer one, this keeps it off that path.

Version 0.10.1, in turn, reports every program that it reads from the compilation cache as an error, because the
compiler's own preferences (`prefer-no-scatter`) are no features of the machine. The programs are right. Its older
emitters compile the programs of a job in four fifths of the time, and rollouts run within 5 % as fast. Without loops
unrolled the same programs compile in three fifths of the time, and rollouts take a quarter longer, which outweighs that
in long trainings only. `XLA_FLAGS=--xla_backend_extra_options=xla_none` has the loops unrolled.

On a GPU a process takes memory as it needs it, not three quarters at once, since tasks of one job run beside each
other. Products of single precision are exact there too: rounded to 10 bits (TF32, JAX's default), a policy would see
other features than its export, and the export would be refused.
"""

import os
import sys
from importlib.util import find_spec

_WITHOUT_YNN = {"--xla_cpu_experimental_ynn_fusion_type": ""}
_AFFECTED = ("0.10.2", "0.11.")
"""Versions of jaxlib, or how they begin. Others may lack the flag, and XLA ends the process over an unknown one."""
_LOCKED = "0.10.1"
_QUICK_TO_COMPILE = {
    "--xla_cpu_use_fusion_emitters": "false",
    "--xla_backend_extra_options": "xla_cpu_disable_loop_unrolling",
}


def prepare() -> None:
    """Sets what the installed jaxlib needs, before it is imported; variables that are already set are kept."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    _multiply_exactly()
    installed = _installed()
    needed: dict[str, str] = {}
    if installed.startswith(_AFFECTED):
        needed = _WITHOUT_YNN
    elif installed == _LOCKED:
        needed = _QUICK_TO_COMPILE
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags = os.environ.get("XLA_FLAGS", "")
    added = [f"{flag}={value}" for flag, value in needed.items() if flag not in flags]
    if added:
        os.environ["XLA_FLAGS"] = " ".join([flags, *added]).strip()


def _multiply_exactly() -> None:
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    if "jax" in sys.modules:  # it has read the environment
        config = sys.modules["jax"].config
        if config.jax_default_matmul_precision is None:
            config.update("jax_default_matmul_precision", "highest")


def _installed() -> str:
    """The version of jaxlib, empty without it. Every command starts here; `importlib.metadata` would take 80 ms."""
    try:
        found = find_spec("jaxlib")
    except ImportError:  # something keeps it from being found
        return ""
    if found is None or found.submodule_search_locations is None:
        return ""
    names = os.listdir(os.path.dirname(found.submodule_search_locations[0]))
    of_jaxlib = (name for name in names if name.startswith("jaxlib-") and name.endswith(".dist-info"))
    return next(of_jaxlib, "jaxlib-.dist-info").removesuffix(".dist-info").removeprefix("jaxlib-")
