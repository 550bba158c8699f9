"""Tides: run times that rise and fall by themselves, everywhere at once or on single nodes, by the time of arrival.

    log(run / table) - crowding = tide everywhere + tide of the node, at the arrival + scatter

Requests may be larger for a while, a storage that all share slower, a node busy with something else: nobody is told,
and a log shows it afterwards. A tide is an Ornstein-Uhlenbeck process, of which a log's runs before and after a
request tell, its own run left out (a Kalman filter in either direction of time; D. Fraser and J. Potter, The optimum
linear smoother as a combination of two optimum linear filters, 1969). It does not depend on decisions, so it is
replayed with the logged arrivals, and no policy observes it. Without it a twin reads long runs off the long queues
that they cause, and promises short ones to whoever keeps queues short (selection by a hidden cause; compare A. Alomar
et al., CausalSim, 2023); and a node that is slow for ten minutes is, in the twin, slow for a few runs.

Variance and memory are those that predict the log's own runs best; what gains less than chance may is no tide. What
rises everywhere may switch between two states instead (`switching`), where that predicts them better still.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from twin.placement.crowding import CrowdedRuns, uncrowded
from twin.placement.run_filter import LEAST_SCATTER, robust_deviation
from twin.placement.switching import TAILS, Switching, chance_along, drawn_states, fit_switching

MOST_RUNS = 20_000
"""Runs of a log that tides are estimated from: the last ones."""
MIN_RUNS = 200
CLIP = 2.0
"""Deviations up to which a residual counts."""
MOST_AT_ONCE = 8_000_000
"""Nodes by rows whose tides are estimated at once: some 50 bytes each."""
MEMORIES_S = (120.0, 600.0, 3_000.0)
SHARES = (0.05, 0.2, 0.5)
"""Of the variance of residuals, that may rise and fall."""
LEAST_NODE_SHARE = 0.2
"""Of it, that a node's tide must make up: a weaker one may be what runs cost each other there, by who decided so."""
NUM_NUMBERS = 3
"""Of a tide more than of none. What it gains in likelihood must exceed so many logarithms of the number of runs, twice
Schwarz's criterion (1978): gains are made in a few hours of a log, and their spread cannot tell them from chance."""
WIDTHS = np.exp(np.linspace(-1.0, 0.5, 13))
"""Factors on a setting's deviations, of which the best is its own: settings are to differ by what they forecast."""


@dataclass(frozen=True)
class Tide:
    """How run times rise and fall; logarithms of seconds.

    Attributes:
        variance: Of the tide; 0: there is none.
        memory_s: Time in which it fades to 1/e.
        scatter: Variance of one run around it.
        offset: Mean of the residuals.
        most: Distance from it up to which a residual counts.
        shift: Of runs in the other of two states; 0: it is a diffusion.
        usual_s, other_s: That these states last in the mean.
    """

    variance: float = 0.0
    memory_s: float = 600.0
    scatter: float = 1.0
    offset: float = 0.0
    most: float = 1.0
    shift: float = 0.0
    usual_s: float = 0.0
    other_s: float = 0.0

    @property
    def switching(self) -> Switching | None:
        """Its two states; None where it is a diffusion."""
        law = Switching(self.shift, self.usual_s, self.other_s, self.offset, self.scatter)
        return law if self.shift else None


def fit_tides(runs: CrowdedRuns, pressure: np.ndarray, num_nodes: int) -> tuple[Tide, Tide]:
    """How run times rise and fall everywhere, and beside that on single nodes, all nodes alike.

    Args:
        runs: Of the training days; the last `MOST_RUNS` are looked at.
        pressure: [services] of `crowding`.
        num_nodes: Nodes.
    """
    last = CrowdedRuns(*(leaf[-MOST_RUNS:] for leaf in runs))
    residual = uncrowded(last, pressure)
    known = np.isfinite(residual) & (last.node >= 0)
    arrival_s, residual, node = last.arrival_s[known], residual[known], last.node[known]
    everywhere = _switched(*_best_tide(arrival_s, residual, np.zeros_like(node), 1), arrival_s, residual)
    residual = residual - tide_along(everywhere, arrival_s, residual)
    of_node = tide_in(arrival_s, residual, node, num_nodes)
    is_weak = of_node.variance < LEAST_NODE_SHARE * (of_node.variance + of_node.scatter)
    return everywhere, Tide() if is_weak or num_nodes < 2 else of_node


def tide_in(arrival_s: np.ndarray, residual: np.ndarray, place: np.ndarray, num_places: int) -> Tide:
    """How residuals rise and fall at each of some places.

    Args:
        arrival_s: [rows] ascending.
        residual: [rows] log(run / run time by the tables), less what is known of it.
        place: [rows] in [0, num_places).
        num_places: All alike, each with a tide of its own.
    """
    return _best_tide(arrival_s, residual, place, num_places)[0]


def _best_tide(
    arrival_s: np.ndarray, residual: np.ndarray, place: np.ndarray, num_places: int
) -> tuple[Tide, float]:
    """`tide_in`, and the log likelihood of the residuals [nats, but for a constant]; -inf where there is no tide."""
    if len(residual) < MIN_RUNS:
        return Tide(), -math.inf
    centre = float(np.median(residual))
    most = CLIP * robust_deviation(residual)
    cut = np.clip(residual - centre, -most, most)
    offset, whole = centre + float(cut.mean()), max(float(cut.var()), LEAST_SCATTER)
    none = Tide(0.0, MEMORIES_S[0], whole, offset, most)
    tried = [
        Tide(share * whole, memory_s, (1.0 - share) * whole, offset, most)
        for share in SHARES
        for memory_s in MEMORIES_S
    ]
    mean, variance = _by_others(tried, arrival_s, residual, place, num_places, own=True)
    nothing = np.zeros(len(residual))
    least = _likelihood(none, residual, nothing, nothing) + NUM_NUMBERS * math.log(len(residual))
    found = [_likelihood(one, residual, mean[:, at], variance[:, at]) for at, one in enumerate(tried)]
    best = int(np.argmax(found))
    return (tried[best], found[best]) if found[best] > least else (none, -math.inf)


def _switched(tide: Tide, likelihood: float, arrival_s: np.ndarray, residual: np.ndarray) -> Tide:
    """The tide of one place, or two states where they forecast the residuals [rows] better."""
    if not tide.variance:
        return tide
    least = likelihood + math.log(len(residual))
    law, found = fit_switching(arrival_s, residual)
    if found <= least:
        return tide
    return replace(
        tide,
        variance=law.variance,
        memory_s=law.memory_s,
        scatter=law.scatter,
        offset=law.offset,
        shift=law.shift,
        usual_s=law.usual_s,
        other_s=law.other_s,
    )


def tide_along(tide: Tide, arrival_s: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """[rows] float32 the tide everywhere at every arrival, by all other runs; residuals are NaN where unknown."""
    if law := tide.switching:
        return (law.shift * (chance_along(law, arrival_s, residual) - law.share)).astype(np.float32)
    return node_tides_along(tide, arrival_s, residual, np.zeros(len(residual), np.int64), 1)[0]


def node_tides_along(
    tide: Tide, arrival_s: np.ndarray, residual: np.ndarray, node: np.ndarray, num_nodes: int
) -> np.ndarray:
    """[nodes, rows] float32 the tide of every node at every arrival, by all other runs there.

    Args:
        tide: How it moves.
        arrival_s: [rows] ascending.
        residual: [rows] NaN where a run is not known.
        node: [rows] -1 where the log does not name it.
        num_nodes: Nodes.
    """
    found = np.zeros((num_nodes, len(residual)), np.float32)
    width = max(1, MOST_AT_ONCE // max(1, len(residual)))
    for begin in range(0, num_nodes if tide.variance else 0, width):
        part = found[begin : begin + width]
        here = np.where((node >= begin) & (node < begin + width), node - begin, -1)
        mean, _ = _by_others([tide], arrival_s, residual, here, len(part), own=False)
        part[:] = mean[:, 0].T
    return found


def drawn_tide(generator: np.random.Generator, tide: Tide, arrival_s: np.ndarray) -> np.ndarray:
    """[rows] float32 a tide at generated arrivals [rows] (ascending), of which no run tells; stationary."""
    if law := tide.switching:
        return (law.shift * (drawn_states(generator, law, arrival_s) - law.share)).astype(np.float32)
    keep = np.concatenate([[0.0], np.exp(-np.diff(arrival_s) / tide.memory_s)])[: len(arrival_s)]
    steps = np.sqrt(tide.variance * (1.0 - keep**2)) * generator.standard_normal(len(keep))
    now, found = 0.0, []
    for kept, step in zip(keep.tolist(), steps.tolist(), strict=True):
        now = kept * now + step
        found.append(now)
    return np.array(found, np.float32)


def _likelihood(tide: Tide, residual: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Log likelihood of residuals, but for a constant, around a tide of known mean and variance [rows]."""
    error, variance = residual - tide.offset - mean, variance + tide.scatter
    rows = [
        0.5 * (TAILS + 1.0) * np.log1p(error**2 / (TAILS * width**2 * variance))
        + 0.5 * np.log(variance)
        + np.log(width)
        for width in WIDTHS
    ]
    return -min(float(np.sum(one)) for one in rows)


def _by_others(
    tried: Sequence[Tide],
    arrival_s: np.ndarray,
    residual: np.ndarray,
    place: np.ndarray,
    num_places: int,
    *,
    own: bool,
) -> np.ndarray:
    """Mean and variance [2, rows, settings] of the tide at every row's own place by all other rows; without `own`
    [2, rows, settings, places] at every place."""
    settings = Tide(*(np.array([[getattr(one, field.name)] for one in tried]) for field in fields(Tide)))  # type: ignore[arg-type]
    seen = np.clip(residual[:, None, None] - settings.offset, -settings.most, settings.most)[..., 0]
    known = np.where(np.isfinite(residual), place, -1)
    shape = len(tried), num_places
    gap_s = np.diff(arrival_s)
    before = _by_earlier(settings, shape, gap_s, seen, known, own)
    after = _by_earlier(settings, shape, gap_s[::-1], seen[::-1], known[::-1], own)[:, ::-1]
    steady = settings.variance[:, 0] if own else settings.variance  # type: ignore[index]
    precision = 1.0 / before[1] + 1.0 / after[1] - 1.0 / steady
    return np.stack([(before[0] / before[1] + after[0] / after[1]) / precision, 1.0 / precision])


def _by_earlier(
    settings: Tide, shape: tuple[int, int], gap_s: np.ndarray, seen: np.ndarray, place: np.ndarray, own: bool
) -> np.ndarray:
    """Mean and variance as of `_by_others`, by the rows before each.

    Args:
        settings: Leaves [settings, 1].
        shape: (settings, places).
        gap_s: [rows - 1] between rows.
        seen: [rows, settings] residuals, cut.
        place: [rows] -1 where nothing is seen.
        own: As of `_by_others`.
    """
    steady, scatter = settings.variance, settings.scatter[:, 0]  # type: ignore[index]
    mean = np.zeros(shape)
    variance = mean + steady
    found = np.empty((2, len(place), *(shape[:1] if own else shape)))
    keep = np.exp(-np.append(gap_s, 0.0)[:, None, None] / settings.memory_s)
    for row, here in enumerate(place.tolist()):
        found[:, row] = (mean[:, here], variance[:, here]) if own else (mean, variance)
        if here >= 0:
            gain = variance[:, here] / (variance[:, here] + scatter)
            mean[:, here] += gain * (seen[row] - mean[:, here])
            variance[:, here] *= 1.0 - gain
        mean *= keep[row]
        variance = steady + keep[row] ** 2 * (variance - steady)
    return found
