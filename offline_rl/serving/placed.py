"""Decided requests as the server remembers them, those whose time is over, and the sets of candidates of all."""

from dataclasses import dataclass

from offline_rl.serving.queries import PlacementQuery

MAX_OVERDUE = 200_000
"""Requests whose time is over that are remembered; beyond that the oldest is forgotten."""


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


class CandidateSets:
    """How many names the candidates of requests take in memory; equal sets take it once.

    Attributes:
        num_names: Of all sets together.
    """

    def __init__(self) -> None:
        self.num_names = 0
        self._users: dict[tuple[str, ...], int] = {}

    def __len__(self) -> int:
        return len(self._users)

    def take(self, names: tuple[str, ...]) -> None:
        """One request more has these candidates."""
        if names not in self._users:
            self.num_names += len(names)
        self._users[names] = self._users.get(names, 0) + 1

    def give(self, names: tuple[str, ...]) -> None:
        """One request less has them."""
        self._users[names] -= 1
        if not self._users[names]:
            del self._users[names]
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
        self._sets.take(placement.query.names)
        self._kept[placement.query.request_id] = until_s, placement

    def get(self, identity: str) -> PlacedRequest | None:
        """The request of a name; None if it is not among them."""
        return self._kept.get(identity, (0.0, None))[1]

    def pop(self, identity: str) -> PlacedRequest | None:
        """Takes a request out; None if it is not among them."""
        placement = self._kept.pop(identity, (0.0, None))[1]
        if placement is not None:
            self._sets.give(placement.query.names)
        return placement

    def pop_oldest(self) -> None:
        """Forgets the request that has been here longest."""
        self.pop(next(iter(self._kept)))

    def weigh(self, placement: PlacedRequest, weighed: PlacedRequest) -> None:
        """Puts a request with its propensity in the place of the same one without."""
        until_s, known = self._kept.get(placement.query.request_id, (0.0, None))
        if known is placement:
            self._kept[placement.query.request_id] = until_s, weighed

    def forget(self, now_s: float) -> None:
        """Forgets those that were to be kept until now."""
        while self._kept and next(iter(self._kept.values()))[0] <= now_s:
            self.pop_oldest()
