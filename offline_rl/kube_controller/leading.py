"""One of several controllers leads: a Lease that is renewed in every turn, and taken over when it no longer is.

Clocks of machines are not compared: a Lease has lapsed where it has not changed for its duration, by one's own clock.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from offline_rl.kube_controller.cluster import PAUSED, ConflictError, Leadership, LeaseStore


class Leading:
    """A candidate for the lead.

    Args:
        cluster: Where the Lease is.
        identity: Name of this controller, another for every process.
        duration_s: How long a Lease holds without being renewed.
        clock_s: A clock that only goes forward.
    """

    def __init__(
        self,
        cluster: LeaseStore,
        identity: str,
        duration_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self.identity, self._duration_s, self._clock_s = cluster, identity, duration_s, clock_s
        self._seen: Leadership | None = None
        self._since_s = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether whoever watches over the cluster has said that nothing is to be changed, when last looked."""
        return self._seen is not None and self._seen.annotations.get(PAUSED) == "true"

    @property
    def leader(self) -> str:
        """Who leads, when last looked; empty where nobody does."""
        return "" if self._seen is None else self._seen.holder

    def leads(self) -> bool:
        """Renews, takes over or leaves the Lease; whether this controller leads now; ClusterError."""
        found = self._cluster.lease()
        if found is None:
            return self._write(Leadership(self.identity, "", self._duration_s, {}, ""))
        if found != self._seen:
            self._seen, self._since_s = found, self._clock_s()
        lapsed = self._clock_s() - self._since_s > found.duration_s
        if found.holder in (self.identity, "") or lapsed:
            return self._write(replace(found, holder=self.identity, duration_s=self._duration_s))
        return False

    def resign(self) -> None:
        """Leaves the lead to whoever comes next; ClusterError."""
        found = self._cluster.lease()
        if found is not None and found.holder == self.identity:
            self._write(replace(found, holder=""))

    def _write(self, lease: Leadership) -> bool:
        try:
            self._cluster.write_lease(lease)
        except ConflictError:
            return False
        self._seen, self._since_s = self._cluster.lease(), self._clock_s()
        return self._seen is not None and self._seen.holder == self.identity
