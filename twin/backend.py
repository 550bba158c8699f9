"""What must be told to the compiler before it first runs: it reads the environment then, and not again.

From jaxlib 0.10.2 on, XLA hands reductions over some ten thousand elements and more to another library on processors,
and what came back was wrong and changed from call to call (jax issues 39103 and 39257). The locked version is older;
where a machine has a newer one, this keeps it off that path.

Version 0.10.1, in turn, reports every program that it reads from the compilation cache as an error, because the
compiler's own preferences (`prefer-no-scatter`) are no features of the machine. The programs are right.
"""

import os
from importlib.metadata import PackageNotFoundError, version

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_AFFECTED = ("0.10.2", "0.11.")
"""Versions of jaxlib, or how they begin. Others may not know the flag, and XLA ends the process over an unknown one."""


_NOISY = "0.10.1"


def prepare() -> None:
    """Keeps XLA off its wrong reductions and quiet about nothing, where the jaxlib that is installed needs it.

    What the environment already says about either stands.
    """
    try:
        installed = version("jaxlib")
    except PackageNotFoundError:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if installed.startswith(_AFFECTED) and _FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}=".strip()
    if installed == _NOISY:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
