"""What slot mode leaves open, and what it refuses."""

from dataclasses import dataclass

from logs_schema.errors import ConfigError
from twin.orchestration.dequeue import FIFO, Dequeue


@dataclass(frozen=True)
class Power:
    """Energy: idle nodes, busy cores, and what is sent (KMPS, figure 10: computing and transmission).

    The paper gives no figures; these are typical of small servers and of access networks.
    """

    idle_w_per_node: float = 10.0
    busy_w_per_core: float = 15.0
    j_per_mib: float = 0.2


@dataclass(frozen=True)
class SlotConfig:
    """How a world is run by slots; the defaults are those of KaiS and KMPS, section IV, where they name a value.

    Attributes:
        slot_s: Length of a slot: every access point dispatches one request a slot.
        slots_per_frame: Slots from one orchestration to the next (25 s).
        slots_per_promotion: Long slots of the hybrid strategy: estimates and urgency move this often.
        queue_places: Requests that an access point holds; it turns away those that find it full.
        node_places: Requests that a node holds, waiting, served or on their way; more are refused.
        arrivals_per_slot: Requests that can enter an access point's queue in one slot; more enter in the next, with
            the time at which they came.
        eap_queue, node_queue: Dequeue strategies.
        only_where_room: Legal is where a replica and a core are idle and nothing of the service waits (KaiS, eq. 4),
            not every node that hosts the service. A request without a legal node stays in its queue.
        drop_served: Late requests are dropped even while they are served (KMPS II-B.1), not only while they wait.
        agents_answer: The world's agents may refuse offers, as in event mode; the papers' agents never do.
        memory_share: Share of a node's memory that the first deployment fills with replicas.
        most_replicas: Replicas of one service on one node in that deployment, at most.
        image_mib_per_gib: Size of a service's image, by its memory.
        changes: Changes of the deployment that may be under way at once (pulls, and removals that wait).
        estimate_memory: Weight of the past in the hybrid's estimates (lambda of KMPS, eq. 3).
        power: What energy is made of.
    """

    slot_s: float = 0.25
    slots_per_frame: int = 100
    slots_per_promotion: int = 8
    queue_places: int = 32
    node_places: int = 12
    arrivals_per_slot: int = 2
    eap_queue: Dequeue = FIFO
    node_queue: Dequeue = FIFO
    only_where_room: bool = False
    drop_served: bool = True
    agents_answer: bool = False
    memory_share: float = 0.5
    most_replicas: int = 4
    image_mib_per_gib: float = 200.0
    changes: int = 4
    estimate_memory: float = 0.8
    power: Power = Power()

    @property
    def frame_s(self) -> float:
        """Seconds from one frame to the next."""
        return self.slot_s * self.slots_per_frame


def validate_config(config: SlotConfig) -> SlotConfig:
    """Returns the configuration if it can be run.

    Raises:
        ConfigError: naming the attribute and what is allowed.
    """
    for name in (
        "slots_per_frame",
        "slots_per_promotion",
        "queue_places",
        "node_places",
        "arrivals_per_slot",
        "most_replicas",
        "changes",
    ):
        if getattr(config, name) < 1:
            refuse_setting(config, name, "at least 1")
    if not 0.0 < config.slot_s < float("inf"):
        refuse_setting(config, "slot_s", "more than 0 and finite")
    if not 0.0 < config.memory_share <= 1.0:
        refuse_setting(config, "memory_share", "more than 0 and at most 1")
    if not 0.0 <= config.estimate_memory < 1.0:
        refuse_setting(config, "estimate_memory", "at least 0 and less than 1")
    if not 0.0 <= config.image_mib_per_gib < float("inf"):
        refuse_setting(config, "image_mib_per_gib", "at least 0 and finite")
    return config


def refuse_setting(config: object, name: str, allowed: str) -> None:
    """Raises ConfigError: this attribute of a configuration is not what is allowed."""
    raise ConfigError(
        f"{name} is {getattr(config, name)}",
        where=f"{type(config).__name__}.{name}",
        allowed=allowed,
        advice="change the configuration",
    )
