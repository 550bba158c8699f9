"""What is handed to functions of the user's and shared between them: its arrays cannot be written."""

import dataclasses
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np


def read_only(value: Any) -> Any:
    """The same value in containers of its own, whose arrays are views that refuse to be written.

    Args:
        value: Arrays in tuples, lists, mappings and dataclasses; everything else is handed on as it is.
    """
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, tuple):
        parts = map(read_only, value)
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, list):
        return [read_only(part) for part in value]
    if isinstance(value, Mapping):
        return {name: read_only(part) for name, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = copy(value)
        for item in dataclasses.fields(value):
            object.__setattr__(own, item.name, read_only(getattr(value, item.name)))
        return own
    return value
