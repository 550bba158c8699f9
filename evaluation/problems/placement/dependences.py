"""What a log shows that run times and answers depend on, beyond the tables of means, in words."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from logs_schema.errors import counted
from offline_rl.runner.cold_starts import ALWAYS_THERE
from twin.placement.disciplines import NAMES
from twin.placement.reported_ends import ReportedEnds
from twin.placement.run_habits import RunHabits
from twin.placement.run_labels import RunLabels
from twin.placement.shared_waits import SITE
from twin.placement.timeouts import Timeouts
from twin.placement.types import RESOURCES, Cluster

NOTHING = "nothing beyond the means of services, nodes and agents"


def dependences_of(
    cluster: Cluster,
    labels: RunLabels | None = None,
    habits: RunHabits | None = None,
    ends: ReportedEnds | None = None,
    run_share: float = 0.0,
) -> list[str]:
    """One entry for each dependence that a fit has found; empty where it has found none. `run_share` is that of
    `FitReport`."""
    found = []
    if run_share > 0.0:
        found.append("run times that move with load, hour or request beyond what is usual")
    if labels is not None:
        parts = {"scenarios": labels.of_scenario, "queues": labels.of_queue}
        named = [
            f"{name} ({most:.1f} times)" for name, table in parts.items() if (most := _range(table)) > 1.0
        ]
        found.append(f"run times of a service that differ between {' and '.join(named)}")
    if by := cluster.kinds_by:
        found.append(f"services whose run times on nodes go by the {by} (data or caches on some nodes)")
    found += _of_requests(habits)
    if cluster.wakes is not None:
        asleep = cluster.wakes.wake_s > 0.0
        longest_s = float(cluster.wakes.wake_s.max())
        found.append(f"{int(asleep.sum())} nodes that sleep when idle (and wake within {longest_s:.3g} s)")
    if cluster.hazard:
        most = 3600.0 * max(cluster.hazard)
        found.append(f"nodes that lose what runs on them (up to {most:.2g} times in an hour of running)")
    if ends is not None:
        amiss = [text for text, is_so in (("missing", ends.loses), ("too late", ends.is_late)) if is_so]
        found.append(f"ends of runs that are {' or '.join(amiss)}, amended by what its nodes can hold")
    if (repeats := cluster.repeats) is not None:
        found.append(
            f"clients who repeat {repeats.chance:.0%} of failed requests (after some {repeats.delay_s:.3g} s)"
        )
    if cluster.awaits:
        found.append("agents who send a request only when their last one has ended")
    if cluster.scarce:
        found.append(f"requests that wait for {' and '.join(RESOURCES[each] for each in cluster.scarce)}")
    found += _waited_for(cluster)
    if cluster.dynamics.moved:
        found.append("run times of nodes and services that move, and are followed")
    if cluster.tide.variance:
        found.append(
            f"requests that are longer for a while everywhere (by some {_share(cluster.tide.variance)})"
        )
    if cluster.node_tide.variance:
        found.append(f"nodes that are slower for a while (by some {_share(cluster.node_tide.variance)})")
    if pressing := int(np.sum(np.asarray(cluster.pressure)[1:] > 0.0)):  # the first is "unknown"
        found.append(f"{pressing} services whose runs make those beside them longer")
    if (pace := cluster.pace) is not None:
        most = float(np.max(pace.pressure))
        found.append(
            "nodes whose runs share the cores"
            if pace.shares
            else f"runs that slow each run beside them by {most:.0%}"
        )
    if cluster.cold is not None:
        cold, room = cluster.cold, cluster.cold.room
        longest_s = float(np.max(cold.startup_s) * np.max(1.0 if cold.slowness is None else cold.slowness))
        after = (
            f"{cold.memory_s:.3g} s"
            if room is None
            else f"{np.min(room):.3g} to {np.max(room):.3g} other services ran on the node"
        )
        found.append(f"services that start cold after {after} (up to {longest_s:.3g} s)")
        if cold.part is not None:
            always = int(np.sum(cold.part < ALWAYS_THERE))
            found.append(f"{always} pairs of a service and a node on which it hardly ever starts cold")
    if cluster.reaction is not None:
        found.append(
            f"agents who accept less when they were served ill lately (by up to {-cluster.reaction.effect:.0%})"
        )
    if (ranks := cluster.priorities) is not None:
        found.append(
            f"queues that go first{' and drive others out' if ranks.preempts else ''}: {_in_order(cluster)}"
        )
    return found


def _of_requests(habits: RunHabits | None) -> list[str]:
    """Of what is requested, and by whom."""
    found = []
    if habits is not None and habits.exponent < 1.0:
        found.append(
            f"requested run times that are only limits (who asks for twice as long takes {2.0**habits.exponent:.2f} "
            "times as long)"
        )
    if habits is not None and habits.agents:
        found.append(
            f"run times that differ between {len(habits.agents)} agents for the same service and request "
            f"({_range(habits.of_agent):.1f} times)"
        )
    return found


def _waited_for(cluster: Cluster) -> list[str]:
    """Of what requests wait for though there is room, and of how long they may run."""
    found = []
    if cluster.in_order:
        found.append("nodes that start requests in the order in which they came")
    if (orders := cluster.disciplines) is not None:
        count = Counter(orders.of_node)
        of_each = ", ".join(
            f"{NAMES[order]} on {counted(count[order], 'node')}" for order in NAMES if count[order]
        )
        found.append(f"nodes that do not start requests in the order in which they came: {of_each}")
    if cluster.shared_waits:
        whose = "of the same site" if cluster.shared_waits == SITE else "of all sites"
        found.append(
            f"requests that wait longer the more wait on other nodes {whose}, as where they share a link"
        )
    if cluster.unordered:
        found.append(
            f"{counted(cluster.unordered, 'node')} that mostly start others before those that came first, in no order "
            "that is known here (waits are drawn as in the log)"
        )
    if cluster.permits:
        limits = zip(cluster.services, cluster.permits, strict=True)
        of_each = ", ".join(f"{most} of {service}" for service, most in limits if most)
        found.append(f"services of which so many run at once, on all nodes together: {of_each}")
    if cluster.concurrency:
        limited = zip(cluster.services, map(max, cluster.concurrency), strict=True)
        of_each = ", ".join(f"up to {most} of {service}" for service, most in limited if most)
        found.append(f"services of which so many run at once on a node: {of_each}")
    if cluster.places:
        places = sorted({most for most in cluster.places if most})
        of_all = str(places[0]) + (f" to {places[-1]}" if len(places) > 1 else "")
        found.append(f"nodes that share their cores among so many requests at most: {of_all}")
    if cluster.timeouts is not None:
        found += _cut_off(cluster, cluster.timeouts)
    if cluster.drops_late:
        found.append("requests that are given up where they have not begun by their deadline")
    if cluster.wait_limit_s:
        found.append(f"requests that are given up where they wait: {_after(cluster, cluster.wait_limit_s)}")
    return found


def _cut_off(cluster: Cluster, timeouts: Timeouts) -> list[str]:
    found = ["runs that are cut off at the run time that was requested"] if timeouts.at_requested else []
    if timeouts.of_service:
        found.append(f"runs that are cut off: {_after(cluster, timeouts.of_service)}")
    return found


def _after(cluster: Cluster, limit_s: Sequence[float]) -> str:
    """For example "ocr after 60 s, asr after 30 s"."""
    limits = zip(cluster.services, limit_s, strict=True)
    return ", ".join(f"{name} after {s:.4g} s" for name, s in limits if s)


def _in_order(cluster: Cluster) -> str:
    """The queues by rank: "urgent, then normal, then low"; those of which nothing is known go with the last."""
    assert cluster.priorities is not None
    of_rank: dict[int, list[str]] = {}
    for name, rank in zip(cluster.queues[1:], cluster.priorities.rank[1:], strict=True):
        of_rank.setdefault(rank, []).append(name)
    return ", then ".join(" and ".join(of_rank[rank]) for rank in sorted(of_rank))


def dependences_in_words(found: list[str]) -> str:
    """For example "the log shows nodes that are slower for a while (by some 20 %)"."""
    return f"the log shows {'; '.join(found) if found else NOTHING}"


def _range(table: np.ndarray) -> float:
    """The longest over the shortest run of a service, [services, labels], where that is largest."""
    return float(np.max(table.max(axis=1) / table.min(axis=1)))


def _share(variance: float) -> str:
    """The deviation of a logarithm as a share."""
    return f"{np.expm1(np.sqrt(variance)):.0%}"
