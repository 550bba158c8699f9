"""What a world may do besides queueing: its agents react, its nodes and links fail. All of it is off by default."""

from dataclasses import dataclass

CALENDAR_DAY_S = 86_400.0
FIFO, PROCESSOR_SHARING = "fifo", "ps"
LINK_KINDS = ("local", "cross_site", "wan")
"""Links from a site to a node of its own, of another site, of the cloud; in the order of their indices."""


@dataclass(frozen=True)
class Reactions:
    """How agents respond to what they lived through (`evaluation.simulator.crowd`).

    An agent's annoyance, in [0, 1], is the fading share of its requests that were late.

    Attributes:
        memory: Weight of the latest request in the annoyance, in (0, 1].
        refusing: An offer is accepted with probability `preference * (1 - refusing * annoyance)`; in [0, 1].
        leaving: After a request an agent leaves for good with probability `leaving * annoyance`; in [0, 1].
        pausing: If it stays, it pauses with probability `pausing * annoyance`; in [0, 1].
        absence_s: Mean of a pause, exponential; a new session begins when the agent returns.
    """

    memory: float = 0.3
    refusing: float = 0.0
    leaving: float = 0.0
    pausing: float = 0.0
    absence_s: float = 1_800.0

    @property
    def any(self) -> bool:
        """Whether agents react at all."""
        return max(self.refusing, self.leaving, self.pausing) > 0.0


@dataclass(frozen=True)
class Outage:
    """A node is down in [from_s, to_s) of the given days; it comes back empty."""

    node: str
    days: tuple[int, ...]
    from_s: float
    to_s: float


@dataclass(frozen=True)
class LinkFault:
    """All links of a kind are slow or down in [from_s, to_s) of the given days, for transfers that begin then.

    `slowdown` multiplies the time of a transfer; inf: the link is down, and transfers wait until `to_s`.
    """

    link: str
    days: tuple[int, ...]
    from_s: float
    to_s: float
    slowdown: float = float("inf")
