"""Files of worlds: read from TOML, and stored in the facts of the logs that they wrote.

A file declares a `World` by the names of its attributes; missing ones have their default. Some keys shorten it:

    like          a preset that gives values missing in the file; lists and values of the file replace the preset's,
                  its tables (drift, reactions, links) are merged into them
    every_node    values of every node that does not set them; likewise `every_service`, `every_scenario`
    load          work, deadlines and inputs are stretched until `parts.even_load` on day 0 is this

The facts hold the world itself, all that differs from the defaults, so that its truth can be simulated without the
file.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.simulator.parts import at_even_load
from evaluation.simulator.presets import PRESETS, preset
from evaluation.simulator.world import World, validate
from logs_schema.errors import ConfigError
from logs_schema.settings import build

FACT = "world"
"""Key in the ground truth of an archive's facts, where the world is no preset."""
_SEEDS_APART = 1_000
"""Between the seeds of a world's draws, so that another draw of one preset is never that of another."""
EVERY = {"every_node": "nodes", "every_service": "services", "every_scenario": "scenarios"}
"""Keys of a file that fill in the parts of a list."""


@dataclass(frozen=True)
class Shortening:
    """The keys of a world's file that are no attributes of the world, see the module's description."""

    like: str = ""
    load: float | None = None


def load_world(path: Path) -> World:
    """Reads a world.

    Raises:
        ConfigError: The file is missing or not TOML, a key is unknown, a value is of the wrong type or range, parts
            contradict each other, or the world has the name of a preset that it is not.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the world: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=str(path)) from error
    short = {item.name for item in fields(Shortening)}
    keys = build(Shortening, {name: value for name, value in content.items() if name in short}, str(path))
    declared = {name: value for name, value in content.items() if name not in short}
    if keys.like:
        declared = _laid_over(plain(preset(keys.like)) | {"name": path.stem}, declared)
    declared = _filled(declared, str(path))
    world = validate(build(World, {"name": path.stem} | declared, str(path)))
    if keys.load is not None:
        world = at_even_load(world, keys.load)
    if any(one.name == world.name and one != world for one in PRESETS):
        raise ConfigError(
            f"{world.name!r} is the name of a preset, which this world is not",
            where=str(path),
            allowed="any name but " + ", ".join(one.name for one in PRESETS),
            advice="give it another name",
        )
    return world


def chosen_world(preset_name: str, file: Path | None, seed: int = 0) -> World:
    """The world of a file, or else the preset; with a seed, another draw of it (`redrawn`).

    Raises:
        ConfigError: see `load_world` and `preset`.
    """
    return redrawn(preset(preset_name) if file is None else load_world(file), seed)


def redrawn(world: World, seed: int) -> World:
    """The same sites, nodes, services and laws with other agents, affinities and preferences; 0 keeps its own."""
    return replace(world, seed=world.seed + _SEEDS_APART * seed)


def facts_of(world: World) -> dict[str, Any]:
    """The entries of a ground truth on its world: a preset by name, any other in full."""
    named: dict[str, Any] = {"preset": world.name}
    return named if world in PRESETS else named | {FACT: plain(world)}


def world_of(truth: Mapping[str, Any]) -> World:
    """The world of a ground truth, as written by `facts_of`.

    Raises:
        ConfigError: it names an unknown preset, or has entries unknown to this version.
    """
    if FACT not in truth:
        return preset(truth["preset"])
    return validate(build(World, truth[FACT], "ground truth of the archive"))


def plain(value: Any) -> Any:
    """A world or a part of one as plain values: all that differs from the defaults."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    default = {item.name: item.default for item in fields(value)} | {
        item.name: item.default_factory() for item in fields(value) if item.default_factory is not MISSING
    }
    kept = {name: getattr(value, name) for name, one in default.items() if getattr(value, name) != one}
    return {name: plain(one) for name, one in kept.items()}


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a file over those of its preset; a law is replaced as a whole."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(below.get(name), Mapping) and "kind" not in value
        merged[name] = _laid_over(below[name], value) if both else value
    return merged


def _filled(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content with every part of a list completed by the values for all of them."""
    filled = {name: value for name, value in content.items() if name not in EVERY}
    for key, parts in EVERY.items():
        if key not in content:
            continue
        common, listed = content[key], filled.get(parts)
        if not isinstance(common, Mapping) or not isinstance(listed, list):
            raise ConfigError(
                f"{key} completes the list {parts}, of which there is none",
                where=where,
                allowed=f"a table [{key}] beside [[{parts}]] or like = PRESET",
            )
        tables = [one for one in listed if isinstance(one, Mapping)]
        if idle := [name for name in common if tables and all(name in one for one in tables)]:
            raise ConfigError(
                f"{key} sets {', '.join(idle)}, which all of {parts} set themselves",
                where=where,
                allowed=f"values that one of {parts} lacks; those of a preset set all that differs from the defaults",
                advice=f"set it in tables [[{parts}]], or leave it out",
            )
        filled[parts] = [{**common, **one} if isinstance(one, Mapping) else one for one in listed]
    return filled
