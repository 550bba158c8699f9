"""Lines that compare samples of columns say nothing of what a log does not know."""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.resampled import Units
from evaluation.certify.samples import Sample
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
