"""Lines that compare samples of columns say nothing of what a log does not know."""

import numpy as np
import pytest
from scipy import stats

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.resampled import Units, column_kls, distribution_distances, pair_kls
from evaluation.certify.samples import Coding, Sample
from evaluation.certify.two_samples import Trio, distribution_lines


def test_of_a_column_that_no_request_of_the_log_knows_nothing_is_said():
    random = np.random.default_rng(0)
    unit = np.repeat(np.arange(6), 100)
    known, unknown = random.normal(size=600), np.full(600, np.nan)

    def part(wait):
        return Units(Sample({"wait": wait, "response time": known}, {}), unit)

    trio = Trio(part(unknown), part(known), part(unknown), 6)
    lines = {line.name: line.verdict for line in distribution_lines("closed loop", trio, CertifyConfig())}
    assert lines["Kolmogorov-Smirnov distance of wait"] is Verdict.NOT_APPLICABLE
    assert lines["Wasserstein distance of wait"] is Verdict.NOT_APPLICABLE
    assert lines["Kolmogorov-Smirnov distance of response time"] is Verdict.PASS


def test_units_count_as_their_rows_repeated_as_often_as_they_are_drawn():
    """KL of columns and pairs, and the distances of one column, against plain counts of repeated rows."""
    random, num_rows = np.random.default_rng(0), 200
    parts = [
        Units(
            Sample(
                {"wait": random.exponential(size=num_rows) + shift},
                {"service": random.choice(["a", "b", "c"], num_rows, p=share)},
            ),
            random.integers(6, size=num_rows),
        )
        for shift, share in ((0.0, (0.5, 0.3, 0.2)), (0.2, (0.2, 0.3, 0.5)))
    ]
    one, two = parts
    coding = Coding(one.sample, 8)
    codes = [coding.codes(part.sample) for part in parts]
    waits = [part.sample.continuous["wait"] for part in parts]
    columns, pairs = column_kls(coding, one, two, 6), pair_kls(coding, one, two, 6)
    smirnov, mover = distribution_distances(waits[0], one.unit, waits[1], two.unit, 6)

    def kl(cells, of_all):
        counts = [np.array([sum(row == cell for row in part) + 0.5 for cell in of_all]) for part in cells]
        p, q = (count / count.sum() for count in counts)
        return float(np.sum(p * np.log(p / q)))

    for weights in random.integers(0, 3, (4, 6)):
        rows = [np.repeat(np.arange(num_rows), weights[part.unit]) for part in parts]
        drawn = weights[None].astype(float)
        for at, name in enumerate(coding.names):
            cells = [code[row, at].tolist() for code, row in zip(codes, rows, strict=True)]
            wanted = kl(cells, range(coding.num_codes(name)))
            assert columns[name](drawn)[0] == pytest.approx(wanted)
        every = sorted({tuple(cell) for code in codes for cell in code.tolist()})
        cells = [[tuple(cell) for cell in code[row].tolist()] for code, row in zip(codes, rows, strict=True)]
        assert pairs["wait", "service"](drawn)[0] == pytest.approx(kl(cells, every))
        repeated = [wait[row] for wait, row in zip(waits, rows, strict=True)]
        assert smirnov(drawn)[0] == pytest.approx(stats.ks_2samp(*repeated).statistic)
        assert mover(drawn)[0] == pytest.approx(stats.wasserstein_distance(*repeated) / np.std(waits[0]))


def test_a_rank_lies_between_zero_and_one_and_two_labels_one_apart():
    coding = Coding(
        Sample({"wait": np.array([1.0, 2.0, 2.0, 5.0])}, {"service": np.array(["a", "b", "c", "a"])})
    )
    sample = Sample({"wait": np.array([0.0, 2.0, 9.0, np.nan])}, {"service": np.array(["a", "b", "x", "c"])})
    rows = coding.matrix(sample)
    np.testing.assert_allclose(rows[:, 0], [0.0, 0.5, 1.0, -1.0])  # of those before and half of the equals
    apart = np.linalg.norm(rows[:, None, 1:] - rows[None, :, 1:], axis=2)
    np.testing.assert_allclose(apart[[0, 0, 1], [1, 3, 3]], 1.0)
    np.testing.assert_array_equal(rows[2, 1:], 0.0)  # a label that is not in the reference
