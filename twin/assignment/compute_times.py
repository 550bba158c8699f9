"""How long an edge computes a request of some size: linear, quadratic or isotonic, chosen on rows kept aside.

The functions are fitted by least squares of relative errors (a second of ten is as wrong as ten of a hundred). The
simplest that no other clearly beats on held-out rows is kept, with what it leaves of them: answers scatter by it.
An edge with too few rows is given the function of its class, and of all edges where the class has too few as well
(CoRaiS, section V-A, fits every edge on its own history alone).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twin.assignment.checking import AssignmentError

LINEAR, QUADRATIC, ISOTONIC = "linear", "quadratic", "isotonic"
MIN_ROWS = 20
"""Rows from which on a function is fitted."""
_EVERY = 5
"""Folds: of so many rows each is kept aside once."""
QUANTILES = 101
_CLEARLY = 3.0
"""Standard errors by which a function must be better on held-out rows than a simpler one."""
_LEAST_S = 1e-6


@dataclass(frozen=True)
class ComputeTime:
    """A fitted function.

    Attributes:
        kind: `LINEAR`, `QUADRATIC` or `ISOTONIC`.
        coefficients: Constant, slope, square; of an isotonic one none.
        sizes, seconds: Knots of an isotonic one, straight between them and constant beyond; else none.
        spread: Deviation of the logarithm of the time over the function, on held-out rows.
        num_rows: That it was fitted on.
        source: Whose history: "own", "class <name>" or "all edges".
        residuals: Distribution of that logarithm, at `QUANTILES` places from its smallest to its largest; nothing is
            left where there are none.
    """

    kind: str
    coefficients: tuple[float, ...]
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    spread: float
    num_rows: int
    source: str
    residuals: tuple[float, ...] = ()

    def inside(self, seconds: np.ndarray, size: np.ndarray, share: float = 0.9) -> np.ndarray:
        """Whether times lie in the middle `share` of their forecast: the function times what held-out rows were off."""
        low, high = self._left(np.array([0.5 - 0.5 * share, 0.5 + 0.5 * share]))
        away = np.log(seconds / self.at(size))
        found: np.ndarray = (away >= low) & (away <= high)
        return found

    def noise(self, uniform: np.ndarray) -> np.ndarray:
        """Factors of the function, as held-out rows had them, at uniform numbers of any shape."""
        return np.exp(self._left(uniform))

    def _left(self, place: np.ndarray) -> np.ndarray:
        """What is left at places in its distribution, 0 to 1."""
        left = self.residuals or (0.0, 0.0)
        return np.interp(place, np.linspace(0.0, 1.0, len(left)), left)

    def at(self, size: np.ndarray) -> np.ndarray:
        """Seconds for sizes of any shape; never below a microsecond."""
        if self.kind == ISOTONIC:
            return np.maximum(np.interp(size, self.sizes, self.seconds), _LEAST_S)
        return np.maximum(np.polynomial.polynomial.polyval(size, self.coefficients), _LEAST_S)


ALL_EDGES = "all edges"


def of_class(name: str) -> str:
    """What a fallback of a class is called."""
    return f"class {name}"


def fit_compute_times(
    edges: Sequence[str],
    classes: Sequence[str | None],
    edge: np.ndarray,
    size: np.ndarray,
    seconds: np.ndarray,
) -> Mapping[str, ComputeTime]:
    """A function for every edge.

    Args:
        edges: Names.
        classes: Their classes, None for unknown.
        edge: [rows] index of the edge that computed.
        size: [rows] of the request; more than 0.
        seconds: [rows] that it took; more than 0.

    Raises:
        AssignmentError: There are too few rows altogether.
    """
    found: dict[str, ComputeTime] = {}
    fallbacks = fit_fallbacks(classes, edge, size, seconds)
    for index, (name, kind) in enumerate(zip(edges, classes, strict=True)):
        mine = edge == index
        is_known = mine.sum() >= MIN_ROWS
        found[name] = _fit(size[mine], seconds[mine], "own") if is_known else without_history(fallbacks, kind)
    return found


def fit_fallbacks(
    classes: Sequence[str | None], edge: np.ndarray, size: np.ndarray, seconds: np.ndarray
) -> Mapping[str, ComputeTime]:
    """The functions of all edges together, and of every class with enough rows; arguments as of `fit_compute_times`."""
    if len(size) < MIN_ROWS:
        raise AssignmentError(
            f"{len(size)} requests are too few to learn computing times from",
            allowed=f"{MIN_ROWS} or more",
            advice="take more days, or another log",
        )
    found = {ALL_EDGES: _fit(size, seconds, ALL_EDGES)}
    class_of_row = np.array([classes[one] or "" for one in edge])
    for kind in sorted({one for one in classes if one}):
        mine = class_of_row == kind
        if mine.sum() >= MIN_ROWS:
            found[of_class(kind)] = _fit(size[mine], seconds[mine], of_class(kind))
    return found


def without_history(fallbacks: Mapping[str, ComputeTime], kind: str | None) -> ComputeTime:
    """The function of an edge that is not known: its class's, else that of all edges."""
    return fallbacks.get(of_class(kind) if kind else ALL_EDGES, fallbacks[ALL_EDGES])


def forecast_error(edge: np.ndarray, size: np.ndarray, seconds: np.ndarray) -> float:
    """How well sizes tell computing times: mean absolute log error on every fifth row, of functions of the others.

    Args:
        edge: [rows] index of the edge that computed.
        size, seconds: [rows], more than 0.

    Returns:
        inf where there are too few rows.
    """
    names = [str(one) for one in range(int(edge.max(initial=-1)) + 1)]
    held_out = np.arange(len(size)) % _EVERY == _EVERY // 2
    if np.sum(~held_out) < MIN_ROWS:
        return float("inf")
    kept = (edge[~held_out], size[~held_out], seconds[~held_out])
    found = fit_compute_times(names, [None] * len(names), *kept)
    forecast_s = np.empty(len(size))
    for index, name in enumerate(names):
        mine = edge == index
        forecast_s[mine] = found[name].at(size[mine])
    return float(np.mean(np.abs(np.log(seconds / forecast_s)[held_out])))


def _fit(size: np.ndarray, seconds: np.ndarray, source: str) -> ComputeTime:
    """The simplest function that no other clearly beats on held-out rows, fitted again on all; its spread is theirs."""
    order = np.argsort(size, kind="stable")
    size, seconds = size[order], seconds[order]
    fold = np.arange(len(size)) % _EVERY
    candidates = (LINEAR, QUADRATIC, ISOTONIC)

    def left(kind: str) -> np.ndarray:
        """[rows] logarithm of every row's time over the function of the other folds."""
        found = np.empty(len(size))
        for one in range(_EVERY):
            out = fold == one
            tried = _fit_one(kind, size[~out], seconds[~out], source)
            found[out] = np.log(seconds[out] / tried.at(size[out]))
        return found

    away, best = {kind: left(kind) for kind in candidates}, candidates[0]
    for kind in candidates[1:]:
        gain = np.abs(away[best]) - np.abs(away[kind])
        if gain.mean() > _CLEARLY * gain.std() / np.sqrt(len(gain)):
            best = kind
    left_of_it = np.quantile(away[best], np.linspace(0.0, 1.0, QUANTILES))
    fitted = _fit_one(best, size, seconds, source)
    return replace(fitted, spread=float(np.std(away[best])), residuals=tuple(left_of_it.tolist()))


def _fit_one(kind: str, size: np.ndarray, seconds: np.ndarray, source: str) -> ComputeTime:
    coefficients: tuple[float, ...] = ()
    sizes: tuple[float, ...] = ()
    knots: tuple[float, ...] = ()
    if kind == ISOTONIC:
        from sklearn.isotonic import IsotonicRegression

        shape = IsotonicRegression().fit(size, seconds, sample_weight=1.0 / np.square(seconds))
        sizes, knots = tuple(shape.X_thresholds_.tolist()), tuple(shape.y_thresholds_.tolist())
    else:
        powers = size[:, None] ** np.arange(2 if kind == LINEAR else 3)
        relative = powers / seconds[:, None]
        coefficients = tuple(np.linalg.lstsq(relative, np.ones(len(size)), rcond=None)[0].tolist())
    raw = ComputeTime(kind, coefficients, sizes, knots, 0.0, len(size), source)
    ratio = seconds / raw.at(size)
    right_on_average = float(ratio.mean())
    return ComputeTime(
        kind,
        tuple(right_on_average * one for one in coefficients),
        sizes,
        tuple(right_on_average * one for one in knots),
        float(np.std(np.log(ratio))),
        len(size),
        source,
    )
