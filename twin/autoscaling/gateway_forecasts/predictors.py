"""Predictors of a logarithm from features: what is chosen from, and the simple ones that forecasts are held against.

Monotone trees never answer faster under more load or with fewer cores. Of a log that counts requests when they are
answered, not when they arrive, that is wrong: there the load is small because answers are slow. So trees without the
constraint stand beside them, and such as correct a log-linear model: other autoscalers grant what the log's did not at
such a load. Held-out blocks decide.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

Predict = Callable[[np.ndarray], np.ndarray]
"""[rows, features] -> [rows]"""
LEAST_DEVIATION = 0.02
"""Features that vary less, in logarithms, are taken to stand still."""
NEIGHBOURS = 10


class Columns(NamedTuple):
    """Where the features of `GatewayForecastInputs` stand."""

    loads: int
    grants: int

    @property
    def levels(self) -> int:
        """Loads and grants."""
        return self.loads + self.grants


Fit = Callable[[np.ndarray, np.ndarray, Columns], Predict]
"""(features [rows, features], logarithms [rows], columns) -> predictor"""


class ColumnScaling(NamedTuple):
    """Means and deviations of columns."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values in deviations from their mean."""
        scaled: np.ndarray = (values - self.mean) / self.deviation
        return scaled


def scaling_of(values: np.ndarray) -> ColumnScaling:
    """The scaling of columns [rows, columns]."""
    return ColumnScaling(values.mean(axis=0), np.maximum(values.std(axis=0), LEAST_DEVIATION))


def constant(_features: np.ndarray, logs: np.ndarray, _columns: Columns) -> Predict:
    """The median of the log, whatever load and grants are."""
    middle = float(np.median(logs))
    return lambda rows: np.full(len(rows), middle)


def log_linear(features: np.ndarray, logs: np.ndarray, _columns: Columns) -> Predict:
    """Ridge regression of logarithms on logarithms."""
    scaling, middle = scaling_of(features), float(logs.mean())
    x = scaling(features)
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (logs - middle))
    return lambda rows: middle + scaling(rows) @ weights


def nearest(number: int) -> Fit:
    """The median of the nearest logged intervals: a table that is looked up."""

    def fit(features: np.ndarray, logs: np.ndarray, _columns: Columns) -> Predict:
        from sklearn.neighbors import NearestNeighbors

        scaling = scaling_of(features)
        table = NearestNeighbors(n_neighbors=min(number, len(logs))).fit(scaling(features))
        return lambda rows: np.median(logs[table.kneighbors(scaling(rows), return_distance=False)], axis=1)

    return fit


def trees(monotone: bool) -> Fit:
    """Boosted trees of the median; rising with load and falling with grants if `monotone`."""

    def fit(features: np.ndarray, logs: np.ndarray, columns: Columns) -> Predict:
        from sklearn.ensemble import HistGradientBoostingRegressor

        signs = np.zeros(features.shape[1], int)
        if monotone:
            signs[: columns.loads], signs[columns.loads : columns.levels] = 1, -1
        model = HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=80, learning_rate=0.07, max_depth=3, min_samples_leaf=20,
            l2_regularization=1.0, monotonic_cst=signs, early_stopping=False, random_state=0,
        )  # fmt: skip
        with threadpool_limits(1):  # small trees: synchronisation of threads costs more than they save
            model.fit(features, logs)

        def predict(rows: np.ndarray) -> np.ndarray:
            with threadpool_limits(1):
                found: np.ndarray = model.predict(rows)
            return found

        return predict

    return fit


def corrected_line(features: np.ndarray, logs: np.ndarray, columns: Columns) -> Predict:
    """What trees add to a log-linear model, which goes on where the log ends and trees stand still."""
    line = log_linear(features, logs, columns)
    rest = trees(monotone=False)(features, logs - line(features), columns)
    return lambda rows: line(rows) + rest(rows)


CANDIDATES: Mapping[str, Fit] = {
    "constant": constant,
    "log-linear": log_linear,
    "monotone trees": trees(True),
    "trees": trees(False),
    "trees on log-linear": corrected_line,
    "neighbours": nearest(NEIGHBOURS),
}
SIMPLE: Mapping[str, Fit] = {"nearest neighbour": nearest(1), "log-linear": log_linear}
"""What a forecast has to beat."""
