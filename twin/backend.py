"""What must be told to the compiler before it first runs.

From jaxlib 0.10.2 on, XLA hands reductions over some ten thousand elements and more to another library on processors,
and what came back was wrong and changed from call to call (jax issues 39103 and 39257). The locked version is older;
where a machine has a newer one, this keeps it off that path.
"""

import os
from importlib.metadata import PackageNotFoundError, version

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_AFFECTED = ("0.10.2", "0.11.")
"""Versions of jaxlib, or how they begin. Others may not know the flag, and XLA ends the process over an unknown one."""


def avoid_wrong_reductions() -> None:
    """Adds the flag to `XLA_FLAGS`, unless the jaxlib that is installed does not need it or the flag is given already.

    Works only before JAX has compiled anything in this process.
    """
    try:
        installed = version("jaxlib")
    except PackageNotFoundError:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if installed.startswith(_AFFECTED) and _FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}=".strip()
