"""The objective of a round, exactly: when the last request of every edge is answered (CoRaiS, equations 6-15).

    C_q = local_s_q + sum of work_s of requests that came to q and stay                     (7)
    I_q = transferred_s_q + sum of work_s of requests that are sent to q                    (8)
    A_q = max(arriving_s_q, longest transfer_s of a request sent to q)                      (9, 10)
    R_q = max(returning_s_q, longest result_s of a request on q)                            (11, 12)
    L_q = max(C_q, A_q) + I_q + R_q                                                         (13)
    the assignment is worth max over q of L_q, and every request has exactly one edge       (6, 14, 15)

What has come and stays is computed while inputs travel; what was sent waits for all of them. The text that is at hand
has lost its formulae; this is our reading of the sentences around them.
"""

import numpy as np

from twin.assignment.types import Costs


def completion_s(costs: Costs, edge: np.ndarray) -> np.ndarray:
    """[*batch, Q] `L_q` of assignments.

    Args:
        costs: Of one instance, or of batches like those of `edge`; one instance serves any batch of assignments.
        edge: [*batch, Z] int, the edge of every request.
    """
    num_edges = costs.local_s.shape[-1]
    batch = edge.shape[:-1]
    work_s, transfer_s, result_s = (_chosen(of_pair, edge) for of_pair in costs[:3])
    stays = edge == costs.source
    rows = int(np.prod(batch, dtype=int))
    place = (np.arange(rows)[:, None] * num_edges + edge.reshape(rows, -1)).ravel()

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values.ravel(), rows * num_edges).reshape(*batch, num_edges)

    def largest(start: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = np.broadcast_to(start, (*batch, num_edges)).astype(float).ravel()
        np.maximum.at(found, place, values.ravel())
        return found.reshape(*batch, num_edges)

    local_s = costs.local_s + total(np.where(stays, work_s, 0.0))
    sent_s = costs.transferred_s + total(np.where(stays, 0.0, work_s))
    arriving_s = largest(costs.arriving_s, np.where(stays, 0.0, transfer_s))
    return np.maximum(local_s, arriving_s) + sent_s + largest(costs.returning_s, result_s)


def makespan_s(costs: Costs, edge: np.ndarray) -> np.ndarray:
    """[*batch] the objective: when the last request is answered."""
    return completion_s(costs, edge).max(axis=-1)


def alone_s(costs: Costs) -> np.ndarray:
    """[*batch, Z, Q] `L_q` if this request were the only new one: no assignment of it to q ends earlier."""
    stays = costs.source[..., None] == np.arange(costs.local_s.shape[-1])
    local_s, arriving_s, sent_s, returning_s = (
        one[..., None, :] for one in (costs.local_s, costs.arriving_s, costs.transferred_s, costs.returning_s)
    )
    staying = np.maximum(local_s + costs.work_s, arriving_s)
    sent = np.maximum(local_s, np.maximum(arriving_s, costs.transfer_s)) + costs.work_s
    return np.where(stays, staying, sent) + sent_s + np.maximum(returning_s, costs.result_s)


def _chosen(of_pair: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """[*batch, Z] the entries of [*batch or none, Z, Q] at the chosen edges."""
    if of_pair.ndim == edge.ndim + 1:
        return np.take_along_axis(of_pair, edge[..., None], axis=-1)[..., 0]
    return of_pair[np.arange(edge.shape[-1]), edge]
