"""A map over the first axes of arguments that costs nothing where there is a single element."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from twin.contracts import PyTree


def mapped(
    function: Callable[..., PyTree], in_axes: Sequence[int | None], size: int
) -> Callable[..., PyTree]:
    """`jax.vmap` along first axes of `size` elements: 0 in `in_axes` marks what is mapped over, None what is common.

    What is mapped is traced twice, and its program is larger; so one element is taken out, and put back afterwards.
    """
    if size > 1:
        return jax.vmap(function, in_axes=tuple(in_axes), axis_size=size)

    def alone(*arguments: Any) -> PyTree:
        given = (
            argument if axis is None else jax.tree.map(lambda leaf: leaf[0], argument)
            for argument, axis in zip(arguments, in_axes, strict=True)
        )
        return jax.tree.map(lambda leaf: leaf[None], function(*given))

    return alone
