"""Worlds at the pace of slots.

A world declares the number of requests in a day and the length of the day, not the load of an access point in a slot of
0.25 s. `time_scaled` runs its clock faster: day, work, deadlines and planned failures shrink by one factor, so that
every slot brings the wanted number of requests to an access point; inputs and outputs shrink with the work, so that
sending them takes the same share of it. Load, mix and drift stay what they are. Latencies do not shrink: the cloud is
as far away as KaiS and KMPS have it (10, 30 and 100 ms against slots of 250 ms).
"""

from dataclasses import replace

from evaluation.simulator.world import World, validate
from logs_schema.errors import ConfigError
from twin.orchestration.config import SlotConfig

REQUESTS_PER_SLOT = 0.35
"""Mean requests that a slot brings to an access point, which can dispatch one; peaks stay below one."""


def time_scaled(world: World, config: SlotConfig, requests_per_slot: float = REQUESTS_PER_SLOT) -> World:
    """The world with its clock run faster.

    Args:
        world: Any world.
        config: For the length of a slot.
        requests_per_slot: Mean requests that a slot brings to an access point, over the nominal day.

    Returns:
        A world of the same name and load; its day has `requests_per_day / (sites * requests_per_slot)` slots.

    Raises:
        ConfigError: as many requests as that could not be dispatched at the peak.
    """
    peak = requests_per_slot * (1.0 + world.daily_amplitude)
    if not 0.0 < peak < 1.0:
        raise ConfigError(
            f"{requests_per_slot:g} requests a slot and access point, {peak:g} at the peak",
            where=f"simulated world {world.name!r} by slots",
            allowed="more than 0, and less than 1 at the peak: an access point dispatches one a slot",
            advice="choose fewer requests a slot",
        )
    day_s = world.requests_per_day / (len(world.sites) * requests_per_slot) * config.slot_s
    factor = day_s / world.day_s
    services = tuple(
        replace(
            service,
            work_s=service.work_s * factor,
            deadline_s=service.deadline_s * factor,
            input_mib=service.input_mib * factor,
            output_mib=service.output_mib * factor,
        )
        for service in world.services
    )
    outages = tuple(replace(one, from_s=one.from_s * factor, to_s=one.to_s * factor) for one in world.outages)
    return validate(replace(world, day_s=day_s, services=services, outages=outages))
