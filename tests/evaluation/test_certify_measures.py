"""Measures of fidelity where their values are known, and what each of them can and cannot see."""

import numpy as np
import pytest

from evaluation.certify.arrival_statistics import arrival_statistics
from evaluation.certify.measures import column_kl, discrete_kl, pairwise_kl, two_sample_auc
from evaluation.certify.samples import Coding, Sample
from logs_schema.errors import ConfigError
from tests.reference.distances import gaussian_mmd, kolmogorov_smirnov, relative_wasserstein


def drawn(seed, num_rows=3000, *, linked=True, shift=0.0):
    """Two linked columns and an unlinked one; without the link the marginals stay."""
    random = np.random.default_rng(seed)
    kind = random.integers(3, size=num_rows)
    of_size = kind if linked else random.integers(3, size=num_rows)
    return Sample(
        {
            "size": of_size + 0.3 * random.normal(size=num_rows) + shift,
            "deadline": random.exponential(size=num_rows),
        },
        {"service": np.array(["a", "b", "c"])[kind]},
    )


REAL, OTHER = drawn(0), drawn(1)
CODING = Coding(REAL)


def test_kl_of_known_laws():
    random = np.random.default_rng(0)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    real, generated = (random.choice(3, 200_000, p=law) for law in (p, q))
    assert discrete_kl(real, generated, 3) == pytest.approx(float(np.sum(p * np.log(p / q))), rel=0.02)
    assert discrete_kl(real, real, 3) == 0.0


@pytest.mark.slow
def test_marginals_alone_pass_the_columns_and_fail_the_pairs_and_the_classifier():
    useless = drawn(2, linked=False)
    floor, told = column_kl(CODING, REAL, OTHER), column_kl(CODING, REAL, useless)
    assert all(told[name] < floor[name] + 0.01 for name in told)
    pairs, pairs_floor = pairwise_kl(CODING, REAL, useless), pairwise_kl(CODING, REAL, OTHER)
    assert pairs["size", "service"] > 0.5 > pairs_floor["size", "service"]
    assert pairs["deadline", "service"] < pairs_floor["deadline", "service"] + 0.01
    assert two_sample_auc(CODING, REAL, useless) > 0.8
    assert abs(two_sample_auc(CODING, REAL, OTHER) - 0.5) < 0.05
    near, far = (
        gaussian_mmd(*(CODING.matrix(one)[:1000] for one in (REAL, two)), 1.0) for two in (OTHER, useless)
    )
    assert far > 0.01 > 5 * abs(near)


def test_the_classifier_s_area_is_that_of_the_likelihood_ratio():
    """Two normal laws one deviation apart: the best area is the normal distribution function at 1 / sqrt(2)."""
    random = np.random.default_rng(1)
    one = Sample({"x": random.normal(size=4000)}, {})
    two = Sample({"x": random.normal(size=4000) + 1.0}, {})
    assert two_sample_auc(Coding(one), one, two) == pytest.approx(0.760, abs=0.02)


def test_the_kernel_distance_of_normal_laws_has_a_closed_form():
    """For N(0, 1) and N(m, 1) with kernel exp(-d^2 / w): 2 c (1 - exp(-m^2 / (w + 4))), c = sqrt(w / (w + 4))."""
    random, width, mean = np.random.default_rng(2), 2.0, 1.5
    found = [
        gaussian_mmd(random.normal(size=(400, 1)), random.normal(size=(400, 1)) + mean, width)
        for _ in range(40)
    ]
    wanted = 2.0 * np.sqrt(width / (width + 4.0)) * (1.0 - np.exp(-(mean**2) / (width + 4.0)))
    assert abs(np.mean(found) - wanted) < 4 * np.std(found) / np.sqrt(40)
    assert np.std(found) / np.sqrt(40) < 0.02 * wanted


def test_distances_of_one_column():
    values = np.linspace(0.0, 1.0, 1001)
    assert kolmogorov_smirnov(values, values + 0.25) == pytest.approx(0.25, abs=0.002)
    assert relative_wasserstein(values, values + 0.25) == pytest.approx(0.25 / values.std(), rel=1e-6)
    assert np.isnan(kolmogorov_smirnov(values, np.array([np.nan])))
    assert np.isnan(relative_wasserstein(np.array([]), values))


def test_what_the_reference_never_saw_has_a_code_of_its_own():
    strange = Sample(
        {"size": np.array([np.nan, 1.0]), "deadline": np.array([1e9, -5.0])},
        {"service": np.array(["z", "a"])},
    )
    codes = CODING.codes(strange)
    sizes = [CODING.num_codes(name) for name in CODING.names]
    assert codes[0, 0] == sizes[0] - 1  # unknown
    assert codes[0, 1] == sizes[1] - 2  # beyond the largest: the last bin
    assert codes[0, 2] == sizes[2] - 1  # a new label
    assert codes[1].tolist()[2] == 0
    with pytest.raises(ConfigError, match="different columns"):
        CODING.codes(Sample({"size": np.zeros(2)}, {}))
    with pytest.raises(ConfigError, match="different lengths"):
        Sample({"size": np.zeros(2)}, {"service": np.zeros(3, str)})
    with pytest.raises(ConfigError, match="cannot be a reference"):
        Coding(REAL.take(np.array([0])))


def test_constant_and_discrete_columns_are_coded_without_empty_bins():
    column = np.repeat([1.0, 2.0, 5.0], 100)
    coding = Coding(Sample({"x": column, "same": np.ones(300)}, {}))
    codes = coding.codes(Sample({"x": column, "same": np.ones(300)}, {}))
    assert len(np.unique(codes[:, 0])) == 3
    assert len(np.unique(codes[:, 1])) == 1


def test_poisson_arrivals_are_told_from_bursts_and_from_the_daily_swing():
    random = np.random.default_rng(4)
    day_s = 86_400.0
    plain = np.sort(random.uniform(0, day_s, 6000))
    found = arrival_statistics(plain, day_s)
    assert found.dispersion == pytest.approx(1.0, abs=0.15)
    assert found.gap_variation == pytest.approx(1.0, abs=0.12)
    assert abs(found.autocorrelation) < 0.05

    swing = random.uniform(0, day_s, 40_000)
    swing = np.sort(swing[random.random(40_000) < 0.5 * (1 - 0.9 * np.cos(2 * np.pi * swing / day_s))])
    assert arrival_statistics(swing, day_s).dispersion == pytest.approx(1.0, abs=0.2)

    bursts = np.sort(np.repeat(random.uniform(0, day_s, 600), 10) + random.exponential(2.0, 6000)).clip(
        0, day_s - 1
    )
    found = arrival_statistics(bursts, day_s)
    assert found.dispersion > 4
    assert found.gap_variation > 3
    assert np.isnan(arrival_statistics(plain[:5], day_s).gap_variation)
