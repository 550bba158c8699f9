"""Rows of the decision log."""

from offline_rl.serving.decision_log import DECISION_COLUMNS, REQUEST_COLUMNS
from offline_rl.serving.journal import Cell
from offline_rl.serving.placed import PlacedRequest

UNKNOWN, WAITING, RUNNING, REJECTED, DROPPED = "unknown", "waiting", "running", "rejected", "dropped"


def request_row(placement: PlacedRequest, status: str, default_site: str) -> list[Cell]:
    """A row of the table `requests`: the question, the decision, and what is known of the outcome.

    Args:
        placement: The decision.
        status: `unknown` or `waiting` when it is decided, `running` when it starts, else how it ended.
        default_site: Of requests that name none.
    """
    query, request = placement.query, placement.query.request
    amounts = {
        name: None if name in query.unspecified else getattr(request, name)
        for name in ("cpu_cores", "memory_gib", "gpus", "requested_run_s", "input_mib", "deadline_s")
    }
    ran = placement.start_s is not None
    row: dict[str, Cell] = amounts | {
        "request_id": query.request_id,
        "arrival": instant(min(query.arrival_s, placement.decided_s)),
        "site": request.site or default_site,
        "scenario": request.scenario,
        "service": request.service,
        "agent": query.agent,
        "queue": request.queue,
        "num_nodes": None if "num_nodes" in query.unspecified else int(request.num_nodes),
        "output_mib": query.output_mib,
        "candidates": query.names or None,
        "decided": instant(placement.decided_s),
        "offered_node": placement.offered or None,
        "propensity": placement.propensity,
        "accepted": False if status == REJECTED else (True if ran else None),
        "session": query.session,
        "start": instant(placement.start_s),
        "finish": instant(placement.finish_s),
        "ran_node": placement.node if ran else None,
        "status": status,
    }
    return [row[name] for name in REQUEST_COLUMNS]


def decision_row(placement: PlacedRequest, **facts: Cell) -> list[Cell]:
    """A row of LOG/decisions: how a decision came about; facts are its other columns, absent ones are empty."""
    row: dict[str, Cell] = facts | {
        "request_id": placement.query.request_id,
        "decided": instant(placement.decided_s),
        "offered_node": placement.offered or None,
        "propensity": placement.propensity,
    }
    return [row.get(name) for name in DECISION_COLUMNS]


def instant(seconds: float | None) -> str | None:
    """Seconds since 1970 as the log writes them: to the microsecond."""
    return None if seconds is None else f"{seconds:.6f}"
