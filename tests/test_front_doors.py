"""Every name that a package exports can be imported from it."""

from importlib import import_module
from inspect import isclass, isfunction

import pytest


@pytest.mark.parametrize("package", ["logs_schema", "twin", "offline_rl", "evaluation"])
def test_everything_exported_exists_and_is_documented(package):
    door = import_module(package)
    assert len(door.__all__) == len(set(door.__all__)) > 0
    for name in door.__all__:
        exported = getattr(door, name)
        assert exported.__doc__ or not (isclass(exported) or isfunction(exported))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = door.nothing_of_this_name
