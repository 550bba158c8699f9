"""Checks of a command's paths before heavy imports: inputs exist and are of their kind, the output has a place."""

import re
import tomllib
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

PRODUCTS = ("archive", "archives", "bundle", "policy", "twin")
ARCHIVES = ("archive", "archives", "arrivals")
FILES = ("config", "named", "paths")
"""Arguments that name inputs of commands, products and files; outputs have other names."""
KINDS = ("policy", "twin")
"""Those that are products of the kind of that name, and are read by parts that do not look at it."""


def refuse_missing(arguments: Namespace) -> None:
    """Raises FormatError or ProductError for an input that does not exist, or an output that cannot be written there.

    The address of an archive in an object store is replaced by its local mirror.
    """
    for name in () if getattr(arguments, "changes_archive", False) else ARCHIVES:
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            setattr(arguments, name, [_here(path) for path in value])
        elif isinstance(value, Path):
            setattr(arguments, name, _here(value))
    for name in PRODUCTS:
        _refuse(_paths(arguments, name), name.removesuffix("s"))
    for name in FILES:
        _refuse(_paths(arguments, name), allowed=getattr(arguments, "other_names", ""))
    for name in KINDS:
        _refuse_other_kind(_paths(arguments, name), name)
    _refuse_place(arguments)
    _refuse_another_there(getattr(arguments, "keep", None), "certificate")


def _here(path: Path) -> Path:
    """The path of a local archive, or of the mirror of one in an object store."""
    if not _is_address(path):
        return path
    from logs_schema.stores import address_of, mirror_of

    address = address_of(path)
    return path if address is None else mirror_of(address)


def refuse_missing_log(config: Path) -> None:
    """Raises FormatError if the raw log of a configuration does not exist; other errors in it are ignored here."""
    try:
        table = tomllib.loads(config.read_text(encoding="utf-8-sig")).get("log")
    except (OSError, ValueError):
        return
    paths = table.get("paths") if isinstance(table, dict) else None
    if isinstance(paths, list):
        _refuse(config.parent / path for path in paths if isinstance(path, str))


def _paths(arguments: Namespace, name: str) -> list[Path]:
    value = getattr(arguments, name, None)
    found = value if isinstance(value, list | tuple) else [value]
    return [path for path in found if isinstance(path, Path)]


def _refuse(paths: Iterable[Path], product: str = "", allowed: str = "") -> None:
    for path in paths:
        if path.exists() or (product and (_is_address(path) or _is_brought_back(path))):
            continue
        from logs_schema.errors import FormatError, ProductError

        if product:
            what, allowed = f"there is no {product} here", "a folder holding manifest.json"
            raise ProductError(what, where=str(path), allowed=allowed, advice="check the path")
        raise FormatError(
            "there is no such file or folder", where=str(path), allowed=allowed, advice="check the path"
        )


def _refuse_other_kind(paths: Iterable[Path], kind: str) -> None:
    for path in paths:
        if not (path / "manifest.json").is_file():
            continue  # the command says so itself
        from logs_schema.product import read_manifest

        read_manifest(path, kind)


def _refuse_place(arguments: Namespace) -> None:
    """Refuses a place where the command's product or page could not be written: else all is computed in vain."""
    out, makes = getattr(arguments, "out", None), str(getattr(arguments, "makes", ""))
    if out is None and makes and arguments.replace:
        from logs_schema.errors import ConfigError

        raise ConfigError(
            "nothing is written that could replace anything", where="--replace", allowed="--out beside it"
        )
    _refuse_another_there(out, makes)
    if getattr(arguments, "writes_page", False) and isinstance(out, Path):
        _refuse_page(out)
    if getattr(arguments, "writes_product", False) and isinstance(out, Path):
        if _is_address(out):
            return _refuse_address(out, arguments)
        _refuse_other_schemes(out)
        from logs_schema.product import refuse_place

        refuse_place(out.absolute(), arguments.replace, getattr(arguments, "if_taken", ""))


def _refuse_another_there(out: Path | None, makes: str) -> None:
    """Refuses a path where a product of another kind is than the command makes, which it would replace."""
    file = out / "manifest.json" if isinstance(out, Path) and makes else None
    if file is None or not file.is_file():
        return
    from logs_schema.errors import ProductError
    from logs_schema.product import read_manifest

    try:
        kind = read_manifest(file.parent).kind
    except ProductError:  # what is damaged may be replaced
        return
    if kind != makes and not (makes == "bundle" and kind.endswith("-bundle")):
        raise ProductError(
            f"the path is taken by a product of kind '{kind}'",
            where=str(out),
            allowed=f"a path that does not exist, or that of a product of kind '{makes}'",
            advice="choose another path, or remove it by hand",
        )


def _refuse_address(out: Path, arguments: Namespace) -> None:
    if not getattr(arguments, "publishes", False):
        from logs_schema.errors import ConfigError

        raise ConfigError(
            "this command writes folders of this machine",
            where=f"--out {out}",
            allowed="a path",
            advice="write a folder, and publish an archive with schedtwin import native FOLDER --out ADDRESS",
        )


def _refuse_other_schemes(out: Path) -> None:
    if scheme := re.match(r"([A-Za-z][\w+.-]+):(/|$)", str(out)):
        from logs_schema.errors import ConfigError

        raise ConfigError(
            f"nothing is written to addresses of {scheme[1]}" if scheme[2] else "the address names nothing",
            where=f"--out {out}",
            allowed="a folder; of an archive also s3://BUCKET/NAME, gs://BUCKET/NAME or file:///FOLDER",
            advice="write a folder and copy it there",
        )


def _refuse_page(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        from logs_schema.errors import ConfigError

        what = "this is a folder" if path.is_dir() else "there is no folder for the file"
        raise ConfigError(
            what, where=f"--out {path}", allowed="a file in a folder that is there", advice="name such a file"
        )


def _is_address(path: Path) -> bool:
    return str(path).startswith(("s3:/", "gs:/", "file:/"))


def _is_brought_back(path: Path) -> bool:
    """Whether the product exists after recovery from an interrupted replacement, which leaves the older one aside."""
    from logs_schema.atomic_folders import sweep

    sweep(path.absolute())
    return path.exists()
