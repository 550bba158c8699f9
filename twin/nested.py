"""Nested dictionaries of arrays as flat ones, named by the path of their keys: `edge/dense_0/kernel`. NumPy alone."""

from collections.abc import Mapping
from typing import Any


def by_path(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of nested mappings, by path."""
    found: dict[str, Any] = {}
    for name, one in tree.items():
        if isinstance(one, Mapping):
            found |= {f"{name}/{path}": leaf for path, leaf in by_path(one).items()}
        else:
            found[str(name)] = one
    return found


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from leaves by path."""
    found: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *folders, last = path.split("/")
        place = found
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = leaf
    return found
