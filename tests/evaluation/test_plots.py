"""Charts of reports: axes that count show whole numbers."""

import re

import pytest

from evaluation.comparison.report.content import Chart, Curve
from evaluation.comparison.report.plots import chart_plot


def ticks_of(x: tuple[float, ...]) -> list[str]:
    chart = Chart("a chart", "place", "value", (Curve("one", x, tuple(0.125 for _ in x)),))
    below = chart_plot(chart).split('id="matplotlib.axis_2"')[0]
    return re.findall(r">([\d.]+)</text>", below)


@pytest.mark.parametrize("most", [3, 21, 24])
def test_an_axis_of_whole_numbers_has_no_halves(most):
    ticks = ticks_of(tuple(float(one) for one in range(1, most + 1)))
    assert len(ticks) > 1
    assert all(float(one).is_integer() for one in ticks)
    assert any(not float(one).is_integer() for one in ticks_of((0.1, 0.5, 0.9)))
