"""Names of a package that are imported at their first use, for `__getattr__` of its `__init__` (PEP 562)."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def at_first_use(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The package's `__getattr__`.

    Args:
        package: Its `__name__`.
        homes: Module of the package -> names of the package that it defines.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get
