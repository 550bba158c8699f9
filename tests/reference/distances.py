"""Distances of samples as their definitions have them: what the certificate's resampled ones are held against."""

import numpy as np

from evaluation.certify.measures import square_distances


def gaussian_mmd(one: np.ndarray, two: np.ndarray, width: float) -> float:
    """Unbiased squared MMD of rows [n, d] and [m, d] under the kernel `exp(-|x - y|^2 / width)`."""

    def mean_off_diagonal(kernel: np.ndarray) -> float:
        size = len(kernel)
        return float((kernel.sum() - np.trace(kernel)) / (size * (size - 1)))

    kernels = [np.exp(-square_distances(*pair) / width) for pair in ((one, one), (two, two), (one, two))]
    return mean_off_diagonal(kernels[0]) + mean_off_diagonal(kernels[1]) - 2.0 * float(kernels[2].mean())


def kolmogorov_smirnov(real: np.ndarray, generated: np.ndarray) -> float:
    """Largest distance of the two distribution functions, in [0, 1]; unknown values are left out."""
    from scipy.stats import ks_2samp

    one, two = (values[np.isfinite(values)] for values in (real, generated))
    return float(ks_2samp(one, two).statistic) if len(one) and len(two) else float("nan")


def relative_wasserstein(real: np.ndarray, generated: np.ndarray) -> float:
    """Earth mover's distance over the real sample's deviation; unknown values are left out."""
    from scipy.stats import wasserstein_distance

    one, two = (values[np.isfinite(values)] for values in (real, generated))
    if not len(one) or not len(two):
        return float("nan")
    spread = float(np.std(one))
    return float(wasserstein_distance(one, two)) / (spread if spread > 0 else 1.0)
