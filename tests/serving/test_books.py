"""Questions of the server's books, which are answered later and in another thread, and books that are opened again."""

import numpy as np
import pytest

from offline_rl.runner import Held, Node, Request
from offline_rl.serving.policies import LedgerBooks
from tests.serving.bundles import drawn_policy
from tests.serving.making import NAMES

NODES = tuple(map(Node, NAMES))
RESIZE, DETECT = Request(service="resize"), Request(service="detect")
ONE_AT_A_TIME = [[0] * 4, [1] * 4, [1] * 4]
"""[services][nodes] of `concurrency`."""


@pytest.fixture
def busy() -> LedgerBooks:
    """Books of nodes that run one request of a service at a time, and one that does."""
    books = LedgerBooks(drawn_policy(concurrency=ONE_AT_A_TIME), NODES, 0.0)
    books.hold("a", "node-1", Held(0.0, 0.0, 100.0, "resize"))
    return books


def test_a_question_waits_for_places_of_its_own_service_whatever_is_asked_after_it(busy):
    question = busy.question(RESIZE, 1.0)
    before = question().scores
    other = busy.question(DETECT, 1.0)
    np.testing.assert_array_equal(question().scores, before)
    assert not np.array_equal(other().scores, before)


def test_nodes_that_a_question_describes_are_waited_for_as_those_of_the_books(busy):
    expected = busy.question(RESIZE, 1.0)()
    told = busy.question(RESIZE, 1.0, NODES)()
    np.testing.assert_array_equal(told.scores, expected.scores)
    assert told.num_out_of_range == expected.num_out_of_range
    turned = busy.question(RESIZE, 1.0, NODES[::-1])()
    np.testing.assert_allclose(turned.scores[::-1], expected.scores, rtol=1e-5)
