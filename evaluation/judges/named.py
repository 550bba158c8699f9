"""What a user names on the command line: `name=module:function`, and for policies `name=folder of a bundle`."""

import importlib
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logs_schema.errors import ConfigError

FUNCTION = "MODULE:FUNCTION"
RAISED = (Exception, SystemExit)
"""What code of the user's may raise without ending the command: a script that exits does not."""


class NamedOption(NamedTuple):
    """An option of the command line that names functions.

    Attributes:
        option: The option, such as "--policy".
        noun: What it names, such as "policy".
        signature: What the function must be, for messages.
        is_one: Whether an imported object is one.
        folder: What a folder may be named as, such as "BUNDLE"; empty where only functions are taken.
    """

    option: str
    noun: str
    signature: str
    is_one: Callable[[Any], bool] = callable
    folder: str = ""


def read_named(texts: Sequence[str], named: NamedOption, here: Path = Path()) -> dict[str, Any]:
    """What the texts `name=module:function` or `name=folder` name.

    Args:
        texts: As on the command line.
        named: The option.
        here: First folder of the module search, and the start of relative paths.

    Returns:
        Name -> imported object, or path of a folder.

    Raises:
        ConfigError: A text of another form, a name given twice, a module or function that cannot be imported.
    """
    forms = [f"NAME={FUNCTION}", *([f"NAME={named.folder}"] if named.folder else [])]
    found: dict[str, Any] = {}
    for text in texts:
        name, _, target = text.partition("=")
        if not name or not target:
            raise ConfigError(
                f"{text!r} names no {named.noun}", where=named.option, allowed=" or ".join(forms)
            )
        if name in found:
            raise ConfigError(f"the name {name!r} is given twice", where=named.option, allowed="a name once")
        if (here / target.partition(":")[0]).is_file():
            raise ConfigError(
                f"{target!r} names a file",
                where=f"{named.option} {name}",
                allowed=" or ".join(forms),
                advice="a function is named by its module, which is searched in the current folder first",
            )
        is_folder = bool(named.folder) and (os.sep in target or (here / target).is_dir())
        if not is_folder and not all(target.partition(":")):
            raise ConfigError(
                f"{target!r} is {'neither a folder nor' if named.folder else 'not'} a function",
                where=f"{named.option} {name}",
                allowed=" or ".join(forms),
                advice="check the spelling",
            )
        found[name] = here / target if is_folder else _imported(name, target, named, here)
    return found


def _imported(name: str, target: str, named: NamedOption, here: Path) -> Any:
    where = f"{named.option} {name}={target}"
    module, _, function = target.partition(":")
    folder = str(here.resolve())
    sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except RAISED as error:  # of a module of the user's: anything
        raise ConfigError(
            f"{named.noun} {name!r} cannot be imported: {error_in_words(error)}",
            where=where,
            allowed=FUNCTION,
            advice="check the spelling; modules are searched in the current folder first",
        ) from error
    finally:
        if folder in sys.path:  # the module may have changed the path: what it put there is its own
            sys.path.remove(folder)
    if not named.is_one(found):
        raise ConfigError(f"{named.noun} {name!r} is no function", where=where, allowed=named.signature)
    return found


def refuse_taken(names: Collection[str], taken: Collection[str], noun: str = "policy") -> None:
    """Raises ConfigError if a policy or judge of the user's has the name of another one of the comparison."""
    if clash := sorted(set(names) & set(taken)):
        raise ConfigError(
            f"the name {clash[0]!r} is taken by a {noun} of the comparison",
            where=f"--{noun}",
            allowed=f"any name but {', '.join(taken)}",
        )


def error_in_words(error: BaseException) -> str:
    """Type and last line of an error; the first where the last one is a link, as JAX ends what it cannot trace."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0] if lines[-1].startswith('See http') else lines[-1]}"
