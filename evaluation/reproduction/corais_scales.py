"""The scales of the CoRaiS paper's tables III to V, and harder ones: without backlogs nothing but balance decides."""

from typing import NamedTuple

from twin.assignment.instances import InstanceConfig


class Scale(NamedTuple):
    """(N, Q, Z) as the paper writes it, with the drawn backlogs of the paper's law or with none."""

    num_all_edges: int
    num_edges: int
    num_requests: int
    has_backlogs: bool = True

    @property
    def name(self) -> str:
        """As in tables."""
        return str(tuple(self[:3])) + ("" if self.has_backlogs else " without backlogs")

    @property
    def slug(self) -> str:
        """As in names of folders."""
        return "-".join(map(str, self[:3])) + ("" if self.has_backlogs else "-empty")

    @property
    def instances(self) -> InstanceConfig:
        """The law of its instances."""
        law = InstanceConfig(*self[:3])
        return law if self.has_backlogs else InstanceConfig(*self[:3], backlogs=(0, 0))


TABLE_3 = (Scale(10, 5, 50), Scale(10, 5, 100), Scale(20, 10, 50), Scale(20, 10, 100))
TABLE_4 = (Scale(20, 10, 200), Scale(60, 30, 400), Scale(100, 50, 600), Scale(100, 50, 800))
TABLE_5 = (
    Scale(200, 100, 2000),
    Scale(600, 300, 4000),
    Scale(1000, 500, 6000),
    Scale(2000, 1000, 10_000),
    Scale(2000, 1000, 15_000),
)
EMPTY = (Scale(10, 5, 100, False), Scale(20, 10, 200, False), Scale(200, 100, 2000, False))
