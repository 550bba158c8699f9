"""The settings of a system run by slots, as public facts of an archive."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from logs_schema.errors import ConfigError
from twin.orchestration.config import Power, SlotConfig, validate_config
from twin.orchestration.dequeue import DELAY_GREEDY, FIFO, HYBRID
from twin.orchestration.frame_config import FrameConfig, validate_frames

SETTINGS = "slots"
"""Key in an archive's facts."""
HOW_TO_SAY = (
    "import it as native with a file slots.toml beside its tables (slot_s = 0.25, in which an access point sends one "
    "request, and slots_per_frame = 100, between two changes of replicas)"
)
_STRATEGIES = {one.name: one for one in (FIFO, DELAY_GREEDY, HYBRID)}
_QUEUES = ("eap_queue", "node_queue")


def as_facts(slots: SlotConfig, frames: FrameConfig) -> dict[str, Any]:
    """The settings as plain values."""
    plain = {item.name: getattr(slots, item.name) for item in fields(slots)}
    plain |= {name: plain[name].name for name in _QUEUES} | {"power": asdict(slots.power)}
    return plain | asdict(frames)


def from_facts(facts: Mapping[str, Any], where: str) -> tuple[SlotConfig, FrameConfig]:
    """The settings of an archive.

    Raises:
        ConfigError: they are missing, unknown or out of range.
    """
    settings = dict(facts.get(SETTINGS, {}))
    if "slot_s" not in settings:
        raise ConfigError(
            "the log does not say how its system is run by slots",
            where=f"{where}, facts, {SETTINGS}",
            allowed="slot_s, slots_per_frame and the other settings of SlotConfig and FrameConfig",
            advice=HOW_TO_SAY,
        )
    try:
        for name in _QUEUES:
            settings[name] = _STRATEGIES[settings.get(name, FIFO.name)]
        settings["power"] = Power(**settings.get("power", {}))
        of_frames = {
            item.name: settings.pop(item.name) for item in fields(FrameConfig) if item.name in settings
        }
        slots = validate_config(SlotConfig(**settings))
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"settings that this version does not know: {error}",
            where=f"{where}, facts, {SETTINGS}",
            allowed="those of SlotConfig and FrameConfig",
        ) from error
    return slots, validate_frames(slots, FrameConfig(**of_frames))
