"""An index as the parameters of a scorer: as such it is trained further, exported and served.

The logarithm of the logistic function in an index is a line through few points, so three hidden layers hold an index to
the last bit (float32): the first two are the prediction's own, the third has a unit for every bend of the lines, and
features that the prediction does not change are handed on beside them.
"""

import numpy as np

from offline_rl.ordering.index import KNOTS, Index, bends
from offline_rl.ordering.predicting import HIDDEN, SEEN
from twin.contracts import PyTree
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.types import Pool

SHARPNESS = 3.0
"""Scores are this many times the index: twice as hasty a job is preferred eight to one."""
CARRIED = ("requested", "width", "waited")
"""Features that the scorer hands on beside the prediction, none of them negative."""
SCORER_HIDDEN = (HIDDEN[0] + len(CARRIED), HIDDEN[1] + len(CARRIED), 2 * len(KNOTS) + len(CARRIED))
"""Widths of the hidden layers of a scorer that is an index."""


def scorer_of(index: Index, pool: Pool) -> PyTree:
    """The parameters of a scorer (`SCORER_HIDDEN`, without identity, not pooled) whose scores are the index, sharpened.

    Args:
        index: the index.
        pool: the processors, in whose logarithm widths are counted.
    """
    first, second, last = (index.predictor["params"][f"Dense_{number}"] for number in range(3))
    names = [feature.name for feature in JOB_FEATURES]
    job = np.zeros((len(names), len(SEEN)), np.float32)
    job[[names.index(name) for name in SEEN], np.arange(len(SEEN))] = 1.0
    carried = np.zeros((len(names), len(CARRIED)), np.float32)
    carried[[names.index(name) for name in CARRIED], np.arange(len(CARRIED))] = 1.0
    a, b, c, d, e = index.exponents
    bent, knots = bends(), len(KNOTS)
    each = np.zeros((2, 2 * knots), np.float32)
    each[0, :knots] = each[1, knots:] = 1.0
    out = np.concatenate([-a * bent, b * bent, [-b - c, -d * np.log1p(pool.processors), e]])
    return {
        "params": {
            "choice": _dense(
                np.concatenate([job @ np.asarray(first["kernel"]), carried], axis=1), first["bias"]
            ),
            "context": _dense(np.zeros((len(POOL_FEATURES), SCORER_HIDDEN[0])), ()),
            "layer_0": _dense(_beside(np.asarray(second["kernel"])), second["bias"]),
            "layer_1": _dense(
                _beside(-np.asarray(last["kernel"]) @ each),
                -np.asarray(last["bias"]) @ each - np.tile(KNOTS, 2),
            ),
            "score": _dense(SHARPNESS * out[:, None], ()),
        }
    }


def index_of(scorer: PyTree, pool: Pool) -> Index | None:
    """The index that `scorer_of` wrote as a scorer, to the precision of float32; None if it is another scorer.

    Args:
        scorer: parameters of a scorer with hidden layers `SCORER_HIDDEN`.
        pool: the processors.
    """
    layers = scorer["params"]
    names = [feature.name for feature in JOB_FEATURES]
    seen = [names.index(name) for name in SEEN]
    (wide, narrow), apart = HIDDEN, [0, len(KNOTS)]  # the first bends of haste and of share
    pairs = (
        (layers["choice"]["kernel"][seen, :wide], layers["choice"]["bias"][:wide]),
        (layers["layer_0"]["kernel"][:wide, :narrow], layers["layer_0"]["bias"][:narrow]),
        (-layers["layer_1"]["kernel"][:narrow, apart], -layers["layer_1"]["bias"][apart] - KNOTS[0]),
    )
    predictor = {f"Dense_{number}": {"kernel": one, "bias": two} for number, (one, two) in enumerate(pairs)}
    out = layers["score"]["kernel"][:, 0].astype(float) / SHARPNESS
    a, b = (-out[0] / bends()[0], out[len(KNOTS)] / bends()[0])
    requested, width, ageing = out[-len(CARRIED) :]
    exponents = np.array([a, b, -requested - b, -width / np.log1p(pool.processors), ageing])
    index = Index({"params": predictor}, exponents)
    again = scorer_of(index, pool)["params"]
    same = all(
        np.allclose(array, layers[layer][part], rtol=1e-4, atol=1e-5)
        for layer, parts in again.items()
        for part, array in parts.items()
    )
    return index if same else None


def _beside(kernel: np.ndarray) -> np.ndarray:
    """A kernel that also hands the carried features on."""
    inputs, outputs = kernel.shape
    whole = np.zeros((inputs + len(CARRIED), outputs + len(CARRIED)), np.float32)
    whole[:inputs, :outputs] = kernel
    whole[inputs:, outputs:] = np.eye(len(CARRIED))
    return whole


def _dense(kernel: np.ndarray, bias: object) -> dict[str, np.ndarray]:
    """An affine layer; a bias that is too short is filled up with zeros."""
    given = np.asarray(bias, np.float32)
    return {
        "kernel": np.asarray(kernel, np.float32),
        "bias": np.concatenate([given, np.zeros(kernel.shape[1] - len(given), np.float32)]),
    }
