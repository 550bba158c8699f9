"""A mixture of Gaussians over agents and conditions together, sampled given the conditions.

With components `k` of weight `w_k`, mean `m_k` and covariance `S_k`, split into rows `x` and conditions `c`:

    p(k | c)    is proportional to  w_k N(c; m_kc, S_kcc)
    x | k, c    is Gaussian with mean  m_kx + S_kxc S_kcc^-1 (c - m_kc)  and covariance  S_kxx - S_kxc S_kcc^-1 S_kcx

Ten components as in Xiong et al., table 1 (scikit-learn's expectation maximisation).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from twin.contracts import Array, PyTree
from twin.population.encoding import AgentEncoding
from twin.population.population import Population, Training, seed_words


@dataclass(frozen=True)
class MixtureConfig:
    """Of the mixture.

    Attributes:
        num_components: Gaussians.
        floor: Added to the variances; one-hot features are singular without it.
        max_rows: Training rows used at most.
    """

    num_components: int = 10
    floor: float = 1e-4
    max_rows: int = 20_000


def mixture(config: MixtureConfig | None = None) -> Population:
    """The mixture as a population."""
    config = config or MixtureConfig()

    def fit(key: Array, encoding: AgentEncoding, training: Training) -> tuple[PyTree, dict[str, Any]]:
        from sklearn.mixture import GaussianMixture  # takes a second to import, and every command would pay

        joint = np.concatenate([training.rows, training.conditions]).T.astype(float)
        random = np.random.default_rng(seed_words(key))
        joint = joint[random.permutation(len(joint))[: config.max_rows]]
        model = GaussianMixture(
            min(config.num_components, len(joint)),
            reg_covar=config.floor,
            random_state=seed_words(key)[-1] % 2**31,
        )
        with threadpool_limits(1):
            model.fit(joint)
        record = {"converged": bool(model.converged_), "iterations": int(model.n_iter_)}
        return {"weight": model.weights_, "mean": model.means_, "covariance": model.covariances_}, record

    return Population("mixture", config, fit, _sample, _structure)


def _sample(key: Array, encoding: AgentEncoding, parameters: PyTree, conditions: np.ndarray) -> np.ndarray:
    random = np.random.default_rng(seed_words(key))
    width, num_rows = encoding.width, conditions.shape[1]
    weight, mean, covariance = (np.asarray(parameters[name]) for name in ("weight", "mean", "covariance"))
    given = conditions.T.astype(float)
    log_weight = np.stack(
        [
            np.log(weight[k]) + _log_normal(given - mean[k, width:], covariance[k, width:, width:])
            for k in range(len(weight))
        ]
    )
    share = np.cumsum(np.exp(log_weight - logsumexp(log_weight, axis=0)), axis=0)
    chosen = np.minimum(np.sum(random.random((1, num_rows)) > share, axis=0), len(weight) - 1)
    drawn = np.zeros((num_rows, width))
    for k in np.unique(chosen):
        here = np.flatnonzero(chosen == k)
        gain = np.linalg.solve(covariance[k, width:, width:], covariance[k, width:, :width]).T
        within = covariance[k, :width, :width] - gain @ covariance[k, width:, :width]
        root = np.linalg.cholesky((within + within.T) / 2.0 + 1e-9 * np.eye(width))
        noise = random.standard_normal((len(here), width))
        drawn[here] = mean[k, :width] + (given[here] - mean[k, width:]) @ gain.T + noise @ root.T
    return drawn.T.astype(np.float32)


def _log_normal(deviation: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    root = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(root, deviation.T)
    return np.asarray(-0.5 * np.sum(scaled**2, axis=0) - np.sum(np.log(np.diag(root))))


def _structure(encoding: AgentEncoding) -> PyTree:
    return {"weight": 0, "mean": 0, "covariance": 0}
