"""Checks that a command's inputs exist, before heavy imports, so that a wrong path fails at once."""

import tomllib
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

PRODUCTS = ("archive", "archives", "bundle", "policy", "twin")
ARCHIVES = ("archive", "archives", "arrivals")
FILES = ("config", "paths")
"""Arguments that name inputs of commands, products and files; outputs have other names."""


def refuse_missing(arguments: Namespace) -> None:
    """Raises FormatError or ProductError for an input of a command that does not exist.

    The address of an archive in an object store is replaced by its local mirror.
    """
    for name in ARCHIVES:
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            setattr(arguments, name, [_here(path) for path in value])
        elif isinstance(value, Path):
            setattr(arguments, name, _here(value))
    for name in PRODUCTS:
        _refuse(_paths(arguments, name), name.removesuffix("s"))
    for name in FILES:
        _refuse(_paths(arguments, name))


def _here(path: Path) -> Path:
    """The path of a local archive, or of the mirror of one in an object store."""
    if not str(path).startswith(("s3:", "gs:", "file:")):
        return path
    from logs_schema.stores import address_of, mirror_of

    address = address_of(path)
    return path if address is None else mirror_of(address)


def refuse_missing_log(config: Path) -> None:
    """Raises FormatError if the raw log of a configuration does not exist; other errors in it are ignored here."""
    try:
        table = tomllib.loads(config.read_text(encoding="utf-8")).get("log")
    except (OSError, ValueError):
        return
    paths = table.get("paths") if isinstance(table, dict) else None
    if isinstance(paths, list):
        _refuse(config.parent / path for path in paths if isinstance(path, str))


def _paths(arguments: Namespace, name: str) -> list[Path]:
    value = getattr(arguments, name, None)
    found = value if isinstance(value, list | tuple) else [value]
    return [path for path in found if isinstance(path, Path)]


def _refuse(paths: Iterable[Path], product: str = "") -> None:
    for path in paths:
        if path.exists() or (product and _is_brought_back(path)):
            continue
        from logs_schema.errors import FormatError, ProductError

        if product:
            what, allowed = f"there is no {product} here", "a folder holding manifest.json"
            raise ProductError(what, where=str(path), allowed=allowed, advice="check the path")
        raise FormatError("there is no such file or folder", where=str(path), advice="check the path")


def _is_brought_back(path: Path) -> bool:
    """Whether the product exists after recovery from an interrupted replacement, which leaves the older one aside."""
    from logs_schema.aside import sweep

    sweep(path.absolute())
    return path.exists()
