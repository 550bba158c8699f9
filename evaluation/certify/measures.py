"""Distances between a real sample and a generated one.

Independent marginals, which are useless, pass the KL per column; so pairs of columns, a classifier and a kernel
distance are measured as well. None of them is zero for two samples of one distribution: each is to be compared with its
noise floor, the same measure between two real samples of the same sizes.
"""

from itertools import combinations

import numpy as np
from threadpoolctl import threadpool_limits

from evaluation.certify.samples import Coding, Sample

PSEUDO_COUNT = 0.5
"""Added to every cell's count (Krichevsky and Trofimov), so that an empty cell has a large but finite cost."""
PAIR_BINS = 8
NUM_FOLDS = 5


def mean_of_known(values: np.ndarray) -> np.ndarray:
    """[rows] means of the finite values of [rows, columns]; NaN where there is none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1))


def discrete_kl(real: np.ndarray, generated: np.ndarray, num_codes: int) -> float:
    """`KL(real || generated)` in nats of two samples of codes [rows] in [0, num_codes)."""
    counts = [np.bincount(codes, minlength=num_codes) + PSEUDO_COUNT for codes in (real, generated)]
    p, q = (count / count.sum() for count in counts)
    return float(np.sum(p * np.log(p / q)))


def column_kl(coding: Coding, real: Sample, generated: Sample) -> dict[str, float]:
    """KL of every column, nats; continuous columns in the reference's quantile bins."""
    one, two = coding.codes(real), coding.codes(generated)
    return {
        name: discrete_kl(one[:, index], two[:, index], coding.num_codes(name))
        for index, name in enumerate(coding.names)
    }


def pairwise_kl(coding: Coding, real: Sample, generated: Sample) -> dict[tuple[str, str], float]:
    """KL of every pair of columns, nats.

    Continuous columns are coded into at most `PAIR_BINS` quantile bins and categories as they are: with more cells than
    rows a KL measures the number of rows.
    """
    coarse = Coding(real, PAIR_BINS)
    one, two = coarse.codes(real), coarse.codes(generated)
    sizes = [coarse.num_codes(name) for name in coarse.names]
    found = {}
    for (i, first), (j, second) in combinations(enumerate(coding.names), 2):
        codes = [part[:, i] * sizes[j] + part[:, j] for part in (one, two)]
        seen, both = np.unique(np.concatenate(codes), return_inverse=True)
        cut = len(codes[0])
        found[first, second] = discrete_kl(both[:cut], both[cut:], len(seen))
    return found


def two_sample_auc(coding: Coding, real: Sample, generated: Sample, *, seed: int = 0) -> float:
    """Held-out area under the curve of a classifier between the samples: 0.5 for chance, 1 for perfect separation.

    Gradient-boosted trees on equally many rows of each sample, cross-validated; values below 0.5 are chance and kept.

    Source: Lopez-Paz and Oquab 2017 (classifier two-sample tests).
    """
    random = np.random.default_rng(seed)
    size = min(real.num_rows, generated.num_rows)
    parts = [
        coding.matrix(sample)[random.permutation(sample.num_rows)[:size]] for sample in (real, generated)
    ]
    features, label = np.concatenate(parts), np.repeat([0, 1], size)
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(label, held_out_scores(features, label, size, seed=seed)))


def held_out_scores(features: np.ndarray, label: np.ndarray, size: int, *, seed: int) -> np.ndarray:
    """[rows] probability of label 1 by gradient-boosted trees that were trained on the other folds.

    Args:
        features: [rows, features].
        label: [rows] 0 or 1.
        size: Rows of the rarer label: no more folds than that.
        seed: Of folds and trees.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # half a second, needed by certificates only
    from sklearn.model_selection import StratifiedKFold

    score = np.zeros(len(label))
    folds = StratifiedKFold(min(NUM_FOLDS, size), shuffle=True, random_state=seed)
    with threadpool_limits(1):  # small trees: synchronisation of threads costs more than they save
        for train, test in folds.split(features, label):
            model = HistGradientBoostingClassifier(
                max_iter=60, max_leaf_nodes=15, min_samples_leaf=20, early_stopping=False, random_state=seed
            )
            model.fit(features[train], label[train])
            score[test] = model.predict_proba(features[test])[:, 1]
    return score


def square_distances(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """[n, m] squared Euclidean distances of rows [n, d] and [m, d]."""
    squares = np.sum(one**2, axis=1)[:, None] + np.sum(two**2, axis=1)[None] - 2.0 * one @ two.T
    return np.asarray(np.maximum(squares, 0.0))
