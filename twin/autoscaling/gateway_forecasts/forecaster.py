"""Forecasts of what users see under given load and grants, with intervals, or none where the log has not been.

Contiguous blocks of the log are held out in turn. Their errors choose the predictor, and, divided by a scale that grows
where neighbouring intervals disagree or predictors do, give the interval as quantiles (conformal prediction with block
cross-validation: Papadopoulos et al. 2002, Barber et al. 2021). An interval is declined where

* its load and grants lie farther from the log than 99 % of the held-out intervals lie from the other blocks, or
* the interval of the forecast spans more than a factor of `WIDEST`: the log says too little to be of use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logs_schema.errors import ConfigError
from twin.autoscaling.gateway_forecasts.inputs import (
    GatewayForecastInputs,
    inputs_of,
    load_source_of,
    quantity_of,
)
from twin.autoscaling.gateway_forecasts.predictors import (
    CANDIDATES,
    NEIGHBOURS,
    Columns,
    ColumnScaling,
    Predict,
    scaling_of,
)
from twin.autoscaling.scaling_log import ScalingLog

NUM_BLOCKS = 8
FEWEST = 100
MOST_ROWS = 8000
WIDEST = 20.0
MISSED = 0.05
"""Share of intervals that may lie outside."""
FARTHEST = 0.99
LAW = "law of stations"

Replay = Callable[[ScalingLog, np.ndarray, ScalingLog], np.ndarray]
"""(log, [intervals] bool: to learn from, log to answer) -> predicted quantity [intervals] of the latter; what a
mechanistic model adds to the candidates."""


class GatewayForecast(NamedTuple):
    """Forecasts of the intervals of a log; NaN where load or grants are not known."""

    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray
    declined: np.ndarray  # bool
    far: np.ndarray  # bool: declined because load and grants are not like the log's


@dataclass(frozen=True)
class GatewayForecaster:
    """What was learned of one quantity.

    Attributes:
        quantity: One of `QUANTITIES`.
        chosen: The candidate with the least error on held-out blocks.
        errors: Candidate -> mean absolute logarithm of predicted over logged, on held-out blocks.
        num_intervals: Learned from.
        forecast: Log -> its forecasts.
    """

    quantity: str
    chosen: str
    errors: Mapping[str, float]
    num_intervals: int
    forecast: Callable[[ScalingLog], GatewayForecast]


class _Support(NamedTuple):
    """The intervals of a log that neighbours are looked up in."""

    scaling: ColumnScaling
    levels: np.ndarray  # scaled
    logs: np.ndarray
    errors: np.ndarray  # of the chosen predictor on held-out blocks

    def near(self, levels: np.ndarray, apart: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances [rows], and indices [rows, NEIGHBOURS] of neighbours; `apart`: [intervals] bool to look among."""
        from sklearn.neighbors import NearestNeighbors

        among = np.arange(len(self.logs)) if apart is None else np.flatnonzero(apart)
        table = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(self.levels[among])
        distance, index = table.kneighbors(self.scaling(levels))
        return distance[:, :3].mean(axis=1), among[index]

    def scale(self, near: np.ndarray, predictions: Mapping[str, np.ndarray]) -> np.ndarray:
        """How far off a forecast usually is, up to a factor."""
        size = np.abs(self.errors)
        apart = np.abs(predictions["monotone trees"] - predictions["neighbours"])
        return (
            0.3 * size.mean() + 0.5 * size[near].mean(axis=1) + 0.25 * (self.logs[near].std(axis=1) + apart)
        )


def fit_forecaster(log: ScalingLog, quantity: str, replay: Replay | None = None) -> GatewayForecaster:
    """Learns one quantity from a log.

    Args:
        log: To learn from.
        quantity: One of `QUANTITIES`.
        replay: A mechanistic model that competes with the candidates.

    Raises:
        ConfigError: The log has no load, or fewer than `FEWEST` intervals with load, grants and quantity.
    """
    source = load_source_of(log)
    inputs, values = inputs_of(log, source), quantity_of(log, quantity)
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(inputs.known & np.isfinite(values) & (values > 0.0))
    if len(rows) < FEWEST:
        raise ConfigError(
            f"{len(rows)} intervals have load, grants and {quantity}",
            where="deployment_samples",
            allowed=f"{FEWEST} or more",
            advice="give more of the log",
        )
    rows = rows[:: -(-len(rows) // MOST_ROWS)]
    columns, logs = Columns(inputs.load.shape[1], inputs.grants.shape[1]), np.log(values[rows])
    features, levels = inputs.features[rows], inputs.levels[rows]
    block = np.arange(len(rows)) * NUM_BLOCKS // len(rows)
    held_out = _held_out(features, logs, columns, block)
    law = None if replay is None else _law_held_out(log, rows, block, replay)
    if law is not None and np.isfinite(law).all():
        held_out[LAW] = law
    errors = {name: float(np.mean(np.abs(found - logs))) for name, found in held_out.items()}
    chosen = min(errors, key=lambda name: errors[name])
    support = _Support(scaling_of(levels), scaling_of(levels)(levels), logs, logs - held_out[chosen])
    distance, scaled = _calibrated(support, levels, held_out, block)
    low, high = (_quantile(scaled, share) for share in (MISSED / 2, 1.0 - MISSED / 2))
    farthest = float(np.quantile(distance, FARTHEST))
    fitted = {name: fit(features, logs, columns) for name, fit in CANDIDATES.items()}

    def forecast(other: ScalingLog) -> GatewayForecast:
        asked = inputs_of(other, source)
        known = np.flatnonzero(asked.known)
        found = (
            {name: predict(asked.features[known]) for name, predict in fitted.items()} if len(known) else {}
        )
        if chosen == LAW and replay is not None and len(known):
            learned = np.zeros(len(log.time_s), bool)
            learned[rows] = True
            found[LAW] = np.log(np.maximum(replay(log, learned, other)[known], 1e-6))
        return _answered(support, asked, known, found, chosen, (low, high), farthest)

    return GatewayForecaster(quantity, chosen, errors, len(rows), forecast)


def _held_out(
    features: np.ndarray, logs: np.ndarray, columns: Columns, block: np.ndarray
) -> dict[str, np.ndarray]:
    """Candidate -> predictions [rows] of each block from the others."""
    found = {name: np.zeros(len(logs)) for name in CANDIDATES}
    for one in range(NUM_BLOCKS):
        out = block == one
        for name, fit in CANDIDATES.items():
            predict: Predict = fit(features[~out], logs[~out], columns)
            found[name][out] = predict(features[out])
    return found


def _law_held_out(log: ScalingLog, rows: np.ndarray, block: np.ndarray, replay: Replay) -> np.ndarray:
    """Predictions [rows] of a mechanistic model, for two blocks at a time from the others; NaN where the other blocks
    are too little to fit it."""
    found = np.zeros(len(rows))
    for one in range(0, NUM_BLOCKS, 2):
        out = (block == one) | (block == one + 1)
        learned = np.ones(len(log.time_s), bool)
        learned[rows[out][0] : rows[out][-1] + 1] = False
        try:
            found[out] = np.log(np.maximum(replay(log, learned, log)[rows[out]], 1e-6))
        except ConfigError:
            return np.full(len(rows), np.nan)
    return found


def _calibrated(
    support: _Support, levels: np.ndarray, held_out: Mapping[str, np.ndarray], block: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distances of held-out intervals to the other blocks, and their errors over the scale."""
    distance, scaled = np.zeros(len(block)), np.zeros(len(block))
    for one in range(NUM_BLOCKS):
        out = block == one
        distance[out], near = support.near(levels[out], ~out)
        scale = support.scale(near, {name: found[out] for name, found in held_out.items()})
        scaled[out] = support.errors[out] / np.maximum(scale, 1e-6)
    return distance, scaled


def _answered(
    support: _Support,
    inputs: GatewayForecastInputs,
    known: np.ndarray,
    found: Mapping[str, np.ndarray],
    chosen: str,
    quantiles: tuple[float, float],
    farthest: float,
) -> GatewayForecast:
    low, middle, high = (np.full(len(inputs.load), np.nan) for _ in range(3))
    far, wide = np.zeros(len(middle), bool), np.zeros(len(middle), bool)
    if len(known):
        distance, near = support.near(inputs.levels[known])
        scale = support.scale(near, found)
        with np.errstate(over="ignore"):
            low[known], middle[known], high[known] = (
                np.exp(found[chosen] + quantile * scale) for quantile in (quantiles[0], 0.0, quantiles[1])
            )
        far[known] = distance > farthest
        wide[known] = (quantiles[1] - quantiles[0]) * scale > np.log(WIDEST)
    return GatewayForecast(low, middle, high, far | wide | ~np.isfinite(middle), far)


def _quantile(values: np.ndarray, share: float) -> float:
    """The quantile that as many new values keep to, of finitely many (rank (n + 1) share, away from the middle)."""
    ordered, wanted = np.sort(values), share * (len(values) + 1) - 1.0
    rank = np.floor(wanted) if share < 0.5 else np.ceil(wanted)
    return float(ordered[int(np.clip(rank, 0, len(values) - 1))])
