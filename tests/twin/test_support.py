"""What a log knows of queues: quantiles by node, by hand."""

import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import Offers
from twin.placement.learned import num_inputs
from twin.placement.outcome_model import Observed
from twin.placement.support import MIN_OFFERS, support_limit_s


def test_usual_is_what_nearly_all_logged_offers_to_a_node_found() -> None:
    cluster = made_cluster(num_edge=2)
    encoding, rows = made_encoding(cluster, time_unit_s=2.0), 3 * MIN_OFFERS
    inputs = np.zeros((num_inputs(cluster), rows), np.float32)
    node = np.where(np.arange(rows) < 2, 1, 0)  # the second is hardly offered, the third never
    inputs[len(NODE_FEATURES) + node, np.arange(rows)] = 1.0
    availability_s = np.where(node == 0, np.linspace(0.0, 100.0, rows), 500.0)
    inputs[-2] = np.log1p(availability_s / 2.0)
    offers = Offers(inputs, Observed(*(np.zeros(rows) for _ in Observed._fields)), np.zeros(rows, int))
    usual = support_limit_s(encoding, offers)
    assert usual[0] == pytest.approx(np.quantile(availability_s[2:], 0.99), rel=2e-3)
    assert usual[0] > np.quantile(availability_s[2:], 0.99)
    assert usual[1:].tolist() == [-1.0, -1.0]
