"""From scores to answers: propensities against their definition and against frequencies, and the 0-10 scores."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_rl.runner import Decision, Request
from offline_rl.serving.choosing import (
    NO_NODE,
    Choice,
    fallback_choice,
    policy_choice,
    propensity,
    share_of,
    ten_point_scores,
)
from offline_rl.serving.cluster import CandidateView
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.fallbacks import ANY, FALLBACKS, FEWEST_REQUESTS, LEAST_LOADED
from offline_rl.serving.queries import PlacementQuery
from tests.serving.making import NAMES, made_service


def view_of(cores, committed, num_held, feasible) -> CandidateView:
    names = tuple(f"n{index}" for index in range(len(cores)))
    numbers = (np.array(values, float) for values in (cores, committed, num_held))
    return CandidateView(names, *numbers, {}, {}, np.array(feasible, bool))


def test_the_fallbacks_do_what_they_say():
    view = view_of([16, 8, np.nan, 4], [8, 2, 0, 0], [1, 2, 0, 5], [1, 1, 1, 0])
    rng = np.random.default_rng(0)
    assert LEAST_LOADED.scores(view).tolist() == [0.5, 0.75, 0.0, 1.0]
    assert fallback_choice(LEAST_LOADED, view, rng).best == 1  # the freest of all cannot take it
    assert fallback_choice(FEWEST_REQUESTS, view, rng).best == 2
    assert fallback_choice(ANY, view, rng).num_best == 3
    assert {fallback_choice(ANY, view, rng).best for _ in range(100)} == {0, 1, 2}


@pytest.mark.parametrize("fallback", FALLBACKS, ids=lambda one: one.name)
def test_a_fallback_names_nobody_where_nobody_can(fallback):
    view = view_of([16, 8], [0, 0], [0, 0], [0, 0])
    assert fallback_choice(fallback, view, np.random.default_rng(0)).best == NO_NODE


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 2), min_size=n, max_size=n),
            st.integers(0, n - 1),
            st.booleans(),
            st.floats(0, 1),
            st.floats(0, 1),
        )
    )
)
def test_propensities_of_all_answers_add_up_to_one(drawn):
    loads, best, answers, canary, explore = drawn
    view = view_of([8] * len(loads), loads, loads, [1] * len(loads))
    fallback = fallback_choice(LEAST_LOADED, view, np.random.default_rng(0))
    policy = Choice(np.zeros(len(loads)), view.feasible, best) if answers else None
    weights = [
        propensity(named, policy, fallback, canary=canary, explore=explore, num_feasible=len(loads))
        for named in range(len(loads))
    ]
    assert min(weights) >= 0.0
    assert sum(weights) == pytest.approx(1.0)


def test_frequencies_of_answers_are_their_propensities():
    config = ServiceConfig(deadline_s=5.0, canary=0.3, explore=0.2, seed=0)
    service = made_service(config=config)
    count: Counter[str] = Counter()
    told: dict[str, set[float]] = {}

    async def query_often() -> None:
        for number in range(1500):
            query = PlacementQuery(f"r{number}", 1000.0, Request(requested_run_s=0.0), NAMES)
            answer = await service.decide(query)
            await service.drain()
            placement = service.cluster.placements[query.request_id]
            count[answer.node] += 1
            told.setdefault(answer.node, set()).add(round(placement.propensity, 9))

    asyncio.run(query_often())
    # nothing is held for long, so the fallback names any of four; the policy names the last
    wanted = {name: 0.2 / 4 + 0.8 * (0.3 * (name == NAMES[-1]) + 0.7 / 4) for name in NAMES}
    assert told == {name: {round(weight, 9)} for name, weight in wanted.items()}
    for name, weight in wanted.items():
        error = 4 * np.sqrt(weight * (1 - weight) / 1500)
        assert count[name] / 1500 == pytest.approx(weight, abs=error)


def test_the_arm_belongs_to_the_request_and_shares_are_uniform():
    shares = np.array([share_of(f"pod-{index}") for index in range(4000)])
    assert share_of("pod-7") == shares[7]
    assert np.abs(np.histogram(shares, 10, (0, 1))[0] / 4000 - 0.1).max() < 4 * np.sqrt(0.09 / 4000)


def test_the_policy_is_asked_about_candidates_only_and_strangers_are_left_out():
    decision = Decision("b", ("a", "b", "c"), np.array([3.0, 9.0, 5.0]), np.array([True, True, True]), 0, 0)
    view = view_of([8, 8, 8], [0, 0, 0], [2, 1, 0], [1, 1, 1])
    assert policy_choice(decision, np.array([0, -1, 2]), view).best == 2
    assert policy_choice(decision, np.array([-1, -1, -1]), view).best == NO_NODE
    assert policy_choice(decision, np.array([1, 1, 1]), view).best == 2  # machines of one class: the emptiest
    nothing = Decision(None, (), np.zeros(0), np.zeros(0, bool), 0, 0)
    assert policy_choice(nothing, np.array([-1, -1, -1]), view).best == NO_NODE


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=1, max_size=20))
def test_scores_are_0_to_10_and_the_named_node_alone_is_best(drawn):
    scores, able = (np.array(column) for column in zip(*drawn, strict=True))
    named = int(np.flatnonzero(able)[np.argmax(scores[able])]) if able.any() else NO_NODE
    points = np.array(ten_point_scores(Choice(scores, able, named), named))
    assert ((points >= 0) & (points <= 10)).all()
    assert (points[~able] == 0).all()
    assert (np.flatnonzero(points == 10) == ([named] if named != NO_NODE else [])).all()
    order = np.argsort(scores[able])
    assert (np.diff(points[able][order]) >= 0).all() or len(set(scores[able])) < able.sum()
