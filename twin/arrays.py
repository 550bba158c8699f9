"""Arrays of a pytree in one npz file, named by their key paths, loaded without pickle into a like-shaped pytree."""

import os
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

import jax
import numpy as np

from logs_schema.disk import room_for
from logs_schema.errors import ProductError, first
from twin.contracts import PyTree
from twin.nested import nested


def save_arrays(path: Path, tree: PyTree) -> None:
    """Writes the leaves of `tree` to `path` (.npz); a reader gets the old file or the whole new one, never a part.

    Raises:
        ProductError: There is no room for it.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in _named(tree)}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with room_for(path, beside), beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_arrays(path: Path, like: PyTree, *, growing: Collection[str] = ()) -> PyTree:
    """Reads what `save_arrays` wrote.

    Args:
        path: The npz file.
        like: A pytree of the wanted structure, shapes and types: arrays, or shapes such as those of `jax.eval_shape`.
        growing: Top-level names whose leaves may have any length along axis 0.

    Returns:
        `like` with NumPy arrays from the file.

    Raises:
        ProductError: The file is no such archive, or its names, shapes or types are not those of `like`.
    """
    arrays = _read(path)
    wanted = dict(_named(like))
    differences = [f"{name} is missing" for name in wanted if name not in arrays]
    differences += [f"{name} is not expected" for name in arrays if name not in wanted]
    for name in wanted.keys() & arrays.keys():
        have, leaf = arrays[name], wanted[name]
        want = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        skip = 1 if name.split("/")[0] in growing else 0
        if have.shape[skip:] != want.shape[skip:] or have.ndim != want.ndim or have.dtype != want.dtype:
            differences.append(f"{name} is {have.dtype}{have.shape}, not {want.dtype}{want.shape}")
    if differences:
        raise ProductError(
            "the arrays are of another model or configuration",
            where=f"{path}: {first(sorted(differences))}",
            advice="use the configuration it was made with, or delete the file to start afresh",
        )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


def load_structure(path: Path, structure: PyTree) -> PyTree:
    """Reads what `save_arrays` wrote into a pytree of the given structure, whatever the arrays' shapes.

    Args:
        path: The npz file.
        structure: A pytree with the wanted structure; its leaves do not matter.

    Returns:
        The structure with NumPy arrays from the file.

    Raises:
        ProductError: The file is no such archive, or its names are not those of `structure`.
    """
    arrays = _read(path)
    names = [name for name, _ in _named(structure)]
    if set(names) != set(arrays):
        raise ProductError(
            "the arrays are of another kind",
            where=f"{path}: {first(sorted(set(names) ^ set(arrays)))}",
            allowed=first(names),
            advice="make the product again with this version",
        )
    return jax.tree.unflatten(jax.tree.structure(structure), [arrays[name] for name in names])


def kept_arrays(
    file: Path | None, make: Callable[[], PyTree], structure: Callable[[], PyTree] | None = None
) -> PyTree:
    """What `make` makes, from its file where it was saved before; `structure` as of `load_structure`, nested
    dictionaries without one. No file saves nothing."""
    if file is None:
        return make()
    if not file.exists():
        save_arrays(file, make())
    return load_nested(file) if structure is None else load_structure(file, structure())


def load_nested(path: Path) -> dict[str, PyTree]:
    """Reads what `save_arrays` wrote of nested dictionaries and named tuples, as nested dictionaries.

    Raises:
        ProductError: The file is no such archive.
    """
    return nested(_read(path))


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as source, np.load(source, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ProductError(
            f"cannot read the arrays: {error}",
            where=str(path),
            allowed="files as they were written",
            advice="make the product that it is in again; of unfinished work delete the file",
        ) from error


def _named(tree: PyTree) -> list[tuple[str, PyTree]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]
