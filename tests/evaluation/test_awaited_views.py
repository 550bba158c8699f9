"""Policies of other encodings see the request that came, where agents await their answers and others come between."""

import numpy as np
import pytest

from evaluation.judges.views import answered, translation_of, with_views
from tests.twin.closed_logs import NUM_STEPS, answering, first_legal_played, logged
from twin.environment import environment
from twin.placement.awaited_arrivals import awaited_arrivals
from twin.placement.bookkeeping import placement
from twin.placement.responses import drawn_response


@pytest.mark.slow
def test_another_encoding_is_told_of_the_same_request_at_every_step():
    encoding, windows = logged(0)
    problem = with_views(
        placement(encoding.cluster, encoding.problem), {"same": encoding}, {"same": translation_of(windows)}
    )
    shown = problem._replace(
        observe=lambda books: (books.own.request.deadline_s, books.others["same"].request.deadline_s)
    )
    response = drawn_response(
        encoding.cluster, encoding.problem.depth, awaited_arrivals(windows), answering()
    )
    system = environment(shown, answered(response))
    played = first_legal_played(system, NUM_STEPS, 2)
    own, other = (np.asarray(leaf)[:, 0] for leaf in played.observation)
    np.testing.assert_array_equal(own, other)
    assert (own != windows.request.deadline_s).any(), "the episode is in the log's order: this tests nothing"
