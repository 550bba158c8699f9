"""Decided requests as the server remembers them, those whose time is over, and the sets of candidates of all."""

import sys
from dataclasses import dataclass, replace

from offline_rl.serving.queries import PlacementQuery

MAX_OVERDUE = 200_000
"""Requests whose time is over that are remembered; beyond that the oldest is forgotten."""
MAX_CANDIDATES = 5_000_000
"""Names in all sets of candidates, about 40 MB; beyond that the oldest requests are remembered without theirs."""


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A decided request that is taken to be in the system.

    Attributes:
        query: The question; its names are the feasible candidates.
        node: Where it was offered, or where it was reported to run; empty where nothing was feasible.
        offered: Where it was offered; likewise.
        decided_s: When.
        propensity: Probability of that offer, once it is known.
        start_s: Reported start, None if none was reported.
        finish_s: Reported end.
        startup_s: The start-up that was due there when it was decided.
    """

    query: PlacementQuery
    node: str
    offered: str
    decided_s: float
    propensity: float | None = None
    start_s: float | None = None
    finish_s: float | None = None
    startup_s: float = 0.0

    def bare(self) -> "PlacedRequest":
        """The same without its candidates."""
        return replace(self, query=replace(self.query, names=()))


class CandidateSets:
    """The candidates of the requests that are remembered; of equal sets one is kept.

    Attributes:
        num_names: Of all sets together.
    """

    def __init__(self) -> None:
        self.num_names = 0
        self._names_of: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def oldest(self) -> str:
        """The request that has had its candidates longest."""
        return next(iter(self._names_of))

    def shared(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The set that is kept of those equal to this one; else this one, of strings that are in memory once."""
        known = self._known.get(names)
        return tuple(map(sys.intern, names)) if known is None else known[0]

    def take(self, placement: PlacedRequest) -> None:
        """A request is remembered; one without candidates takes nothing."""
        names = placement.query.names
        if not names:
            return
        if names not in self._known:
            self.num_names += len(names)
        kept, num_users = self._known.get(names, (names, 0))
        self._known[kept] = kept, num_users + 1
        self._names_of[placement.query.request_id] = kept

    def give(self, identity: str) -> None:
        """A request, or its candidates, is no longer remembered."""
        names = self._names_of.pop(identity, None)
        if names is None:
            return
        num_users = self._known[names][1] - 1
        if num_users:
            self._known[names] = names, num_users
        else:
            del self._known[names]
            self.num_names -= len(names)


class Overdue:
    """Requests whose time was over before anything was reported of them: they hold nothing, and an event revives them.

    Without them a start that is reported late could never be told from none.

    Args:
        sets: Where their candidates count.
    """

    def __init__(self, sets: CandidateSets) -> None:
        self._sets = sets
        self._kept: dict[str, tuple[float, PlacedRequest]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, placement: PlacedRequest, until_s: float) -> None:
        """Remembers a request until an instant, no earlier than those of the requests before."""
        if len(self._kept) >= MAX_OVERDUE:
            self.pop_oldest()
        self._sets.take(placement)
        self._kept[placement.query.request_id] = until_s, placement

    def get(self, identity: str) -> PlacedRequest | None:
        """The request of a name; None if it is not among them."""
        return self._kept.get(identity, (0.0, None))[1]

    def pop(self, identity: str) -> PlacedRequest | None:
        """Takes a request out; None if it is not among them."""
        placement = self._kept.pop(identity, (0.0, None))[1]
        if placement is not None:
            self._sets.give(identity)
        return placement

    def pop_oldest(self) -> None:
        """Forgets the request that has been here longest."""
        self.pop(next(iter(self._kept)))

    def weigh(self, placement: PlacedRequest, weighed: PlacedRequest) -> None:
        """Puts a request with its propensity in the place of the same one without."""
        until_s, known = self._kept.get(placement.query.request_id, (0.0, None))
        if known is placement:
            self._kept[placement.query.request_id] = until_s, weighed

    def strip(self, identity: str) -> None:
        """Leaves the candidates of a request out, if it is among them."""
        if identity in self._kept:
            until_s, placement = self._kept[identity]
            self._kept[identity] = until_s, placement.bare()

    def forget(self, now_s: float) -> None:
        """Forgets those that were to be kept until now."""
        while self._kept and next(iter(self._kept.values()))[0] <= now_s:
            self.pop_oldest()
