"""What makes no assignment problem is refused in words."""

import numpy as np
import pytest

from tests.assignment.making import drawn, plain_costs
from twin.assignment.checking import AssignmentError, refuse_bad_costs, refuse_bad_sizes, refuse_duplicates


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        (plain_costs(np.empty((2, 0))), "there is no edge"),
        (plain_costs([[1.0, 1.0], [np.inf, np.inf]]), "no edge hosts the service"),
        (plain_costs([[1.0, -1.0]]), "computing time is negative"),
        (plain_costs([[1.0, np.nan]]), "computing time is negative"),
        (plain_costs([[1.0]], transfer_s=[[-1.0]]), "a time is negative"),
        (plain_costs([[1.0]], local_s=[np.inf]), "a time is negative"),
        (plain_costs([[1.0]], source=[1]), "an edge that is not there"),
    ],
)
def test_bad_rounds_are_refused(costs, words):
    with pytest.raises(AssignmentError, match=words):
        refuse_bad_costs(costs)


def test_good_rounds_are_not():
    refuse_bad_costs(drawn().costs)
    refuse_bad_costs(plain_costs(np.empty((0, 3))))


def test_sizes_and_names():
    refuse_bad_sizes(np.array([0.1]))
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(AssignmentError, match=r"(?s)zero, negative.*input_mib of requests 1"):
            refuse_bad_sizes(np.array([1.0, wrong]))
    refuse_duplicates("requests", ["a", "b"])
    with pytest.raises(AssignmentError, match=r"(?s)requests stand twice.*: a"):
        refuse_duplicates("requests", ["a", "b", "a", "a"])
