"""How many callers may be connected, and which one is closed when there is no room.

A connection costs a file descriptor, and a process has a limited number of them. So callers are counted when they are
accepted, before TLS, headers or token; where there is no room the connection that has been idle longest is closed, and
where none is idle the new one is.
"""

import resource
from typing import Protocol

from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import Notices

MAX_CONNECTIONS = 2000
"""Connections that are wanted, as far as the system gives descriptors."""
NUM_RESERVED = 128
"""Descriptors for the log, the bundle, and connections on their way in or out."""


class Caller(Protocol):
    """A connection."""

    def hang_up(self) -> None:
        """Ends the connection at once."""


class Connections:
    """The connected callers. Belongs to one event loop.

    Args:
        limit: Connections at most.
        metrics: Where they are counted.
        notices: Where a lack of room is written.
    """

    def __init__(self, limit: int, metrics: Metrics, notices: Notices | None = None) -> None:
        self.limit, self.metrics, self.notices = limit, metrics, notices or Notices()
        self._open: set[Caller] = set()
        self._idle: dict[Caller, None] = {}  # the longest idle one comes first

    @property
    def num_open(self) -> int:
        """Connections that hold a descriptor."""
        return len(self._open)

    @property
    def crowded(self) -> bool:
        """Whether half of the room is taken: idle connections should not stay long."""
        return 2 * len(self._open) > self.limit

    def enter(self, caller: Caller) -> bool:
        """Counts a new caller in, in the place of an idle one if need be; False where there is no room."""
        if len(self._open) >= self.limit and not self.shed():
            self.metrics.connections_refused.inc()
            self.notices.write("refused", f"{self.limit} callers are busy: a new one was hung up on")
            return False
        self._open.add(caller)
        self.metrics.connections.set(len(self._open))
        return True

    def rest(self, caller: Caller) -> None:
        """A caller is idle; from now on it may be closed."""
        self._idle.pop(caller, None)
        if caller in self._open:
            self._idle[caller] = None

    def work(self, caller: Caller) -> None:
        """A caller has sent the head of a request."""
        self._idle.pop(caller, None)

    def leave(self, caller: Caller) -> None:
        """A caller's descriptor is free again."""
        self._idle.pop(caller, None)
        self._open.discard(caller)
        self.metrics.connections.set(len(self._open))

    def shed(self) -> bool:
        """Hangs up on the caller that has been idle longest; False where none is."""
        if not self._idle:
            return False
        caller = next(iter(self._idle))
        del self._idle[caller]
        self.metrics.connections_shed.inc()
        self.notices.write("shed", f"{self.limit} connections are open: the longest idle one was closed")
        caller.hang_up()
        return True


def connection_limit() -> int:
    """Connections that the process's descriptors allow; the limit of the process is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + NUM_RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
        except (OSError, ValueError):  # a system with rules of its own: what there is has to do
            pass
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(soft - NUM_RESERVED, soft // 2, 1))
