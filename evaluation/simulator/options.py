"""What a world may do besides queueing: its agents react, its nodes and links fail, its nodes slow
down and its users exaggerate. All of it is off by default."""

from dataclasses import dataclass
from math import exp

CALENDAR_DAY_S = 86_400.0
FIFO, PROCESSOR_SHARING = "fifo", "ps"
LINK_KINDS = ("local", "cross_site", "wan")
"""Links from a site to a node of its own, of another site, of the cloud; in the order of their indices."""


@dataclass(frozen=True)
class Reactions:
    """Reactions of agents to the outcomes of their requests (`evaluation.simulator.crowd`).

    An agent's impatience, in [0, 1], is the fading share of its requests that were late (or refused).

    Attributes:
        memory: Weight of the latest request in the impatience, in (0, 1].
        refusing: An offer is accepted with probability `preference * (1 - refusing * impatience)`; in [0, 1].
        leaving: After a request an agent leaves for good with probability `leaving * impatience`; in [0, 1].
        pausing: If it stays, it pauses with probability `pausing * impatience`; in [0, 1].
        absence_s: Mean of a pause, exponential; a new session begins when the agent returns.
        after_refusals: Weight of a refused offer in the impatience, relative to a late request, in [0, 1].
        newcomer_s: Mean time until an agent that has left is replaced, exponential; inf: over night only.
        one_at_a_time: Whether an agent sends nothing while a request of its own is in the system: a closed system, in
            which think times are exponential.
    """

    memory: float = 0.3
    refusing: float = 0.0
    leaving: float = 0.0
    pausing: float = 0.0
    absence_s: float = 1_800.0
    after_refusals: float = 0.0
    newcomer_s: float = float("inf")
    one_at_a_time: bool = False

    @property
    def any(self) -> bool:
        """Whether agents react at all."""
        return self.move_arrivals or self.refusing > 0.0

    @property
    def move_arrivals(self) -> bool:
        """Whether when requests come depends on how agents were served, and so on the scheduler."""
        return self.one_at_a_time or max(self.leaving, self.pausing) > 0.0


@dataclass(frozen=True)
class Periods:
    """A two-state Markov chain that multiplies something in its other periods (`evaluation.simulator.modulation`).

    Attributes:
        factor: What it multiplies by meanwhile, > 0; 1: there is no chain.
        usual_s: Mean length of usual periods, exponential.
        other_s: Mean length of the others, exponential.
    """

    factor: float = 1.0
    usual_s: float = 3_600.0
    other_s: float = 900.0

    @property
    def any(self) -> bool:
        """Whether anything changes at all."""
        return self.factor != 1.0

    @property
    def share(self) -> float:
        """Share of time in other periods."""
        return self.other_s / (self.usual_s + self.other_s)

    @property
    def mean(self) -> float:
        """Mean factor over time."""
        return 1.0 + self.share * (self.factor - 1.0)

    def variance_of_mean(self, span_s: float) -> float:
        """Variance of the mean factor over a span, relative to `mean` squared (autocovariance: exponential)."""
        memory_s = 1.0 / (1.0 / self.usual_s + 1.0 / self.other_s)
        of_one = self.share * (1.0 - self.share) * (self.factor - 1.0) ** 2 / self.mean**2
        kept = memory_s / span_s
        return of_one * 2.0 * kept * (1.0 - kept * (1.0 - exp(-1.0 / kept)))


@dataclass(frozen=True)
class Tides:
    """Variation of the popularity of services within a day, each with its own phase.

    A request at a site is for service s with a probability proportional to

        share * exp(strength * cos(2 pi (per_day * t / day_s - phase[s] - lag * site)))

    with phases drawn from the world's own seed: the same every day, so that they can be estimated from a log.

    Attributes:
        strength: Largest logarithm of a share over its mean one, >= 0; 0: shares stay.
        per_day: Cycles in a nominal day, > 0.
        lag: Part of a cycle by which every site lags behind the one before.
    """

    strength: float = 0.0
    per_day: float = 1.0
    lag: float = 0.0

    @property
    def any(self) -> bool:
        """Whether shares change within a day."""
        return self.strength > 0.0


@dataclass(frozen=True)
class Declared:
    """Relation of declared to true work, where the declared work is only a limit.

    A request declares `work_s * size * asks`, rounded up, where `asks` is its agent's own factor. Its true work is

        work_s * (declared / (work_s * asks)) ** informative * run    (of mean `work_s * run`)

    Where declared work is rounded up, its mean is larger: by a fifth to a third in the examples of worlds, which
    `parts.even_load` and `conditions.peak_load` do not tell.

    Attributes:
        excess: Mean ratio of declared to true work; 1: no excess.
        agent_spread: Deviation of the logarithm of that factor between agents.
        informative: 1: the true work is proportional to the declared work; 0: it is independent of it.
        rounded_to_s: Values that declared work is rounded up to, ascending; above the last it is not rounded.
        limits: A run ends, completed, when it has done the declared work.
        kills: A run fails when it has taken the declared time, on whatever node, as batch systems end what reaches the
            run time that it requested. On a slower node more runs fail.
    """

    excess: float = 1.0
    agent_spread: float = 0.0
    informative: float = 1.0
    rounded_to_s: tuple[float, ...] = ()
    limits: bool = False
    kills: bool = False

    @property
    def any(self) -> bool:
        """Whether declared work is anything but the expected one."""
        return self != Declared()


@dataclass(frozen=True)
class Reports:
    """Errors of a log in the ends of runs; nodes, agents and the deciding policy have the true ends in time.

    Attributes:
        lost: Share of runs whose end is not in the log, in [0, 1].
        late: Share of the others whose end is logged too late, in [0, 1].
        delay_s: Mean delay of those, exponential.
    """

    lost: float = 0.0
    late: float = 0.0
    delay_s: float = 60.0

    @property
    def any(self) -> bool:
        """Whether the log has any such errors."""
        return max(self.lost, self.late) > 0.0


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
