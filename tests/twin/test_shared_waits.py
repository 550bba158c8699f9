"""Waits for what waits on other nodes: read off a log, and how many these are."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.problems.placement.dependences import dependences_of
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_against_loop import log_agrees_with_the_loop
from twin.placement.encoding import Encoding
from twin.placement.priorities import QueuedRuns
from twin.placement.shared_waits import ALL, SITE, beside, fit_shared_waits

SITE_OF_NODE = np.array([0, 1, 0, 1])


def moved(rng: np.random.Generator, shared: str, count: int = 3000) -> tuple[QueuedRuns, np.ndarray]:
    """Requests whose input takes the longer the larger it is, and the more are under way with it; and the inputs."""
    node, arrival_s = rng.integers(0, 4, count), np.cumsum(rng.exponential(12.0, count))
    input_mib, start_s = rng.lognormal(1.5, 0.5, count), np.full(count, np.inf)
    for row in range(count):
        recent = np.arange(max(row - 100, 0), row)
        waits = recent[start_s[recent] > arrival_s[row]]
        if shared == SITE:
            waits = waits[SITE_OF_NODE[node[waits]] == SITE_OF_NODE[node[row]]]
        wait_s = input_mib[row] * (1.0 + len(waits) * bool(shared)) * rng.lognormal(0.0, 0.3)
        start_s[row] = arrival_s[row] + wait_s
    zero = np.zeros(count, int)
    return QueuedRuns(zero, node, arrival_s, start_s, start_s + 1.0, np.ones(count), zero), input_mib


@pytest.mark.parametrize("shared", [SITE, ALL, ""])
def test_what_is_shared_is_read_off_waits_on_nodes_with_room(shared: str) -> None:
    held, input_mib = moved(np.random.default_rng(2), shared)
    has_room = np.ones(len(input_mib), bool)
    assert fit_shared_waits(held, has_room, held.node, input_mib, SITE_OF_NODE) == shared
    assert fit_shared_waits(held, ~has_room, held.node, input_mib, SITE_OF_NODE) == ""


def test_nothing_is_shared_where_nothing_waits() -> None:
    held, input_mib = moved(np.random.default_rng(2), SITE, 600)
    at_once = held._replace(start_s=held.arrival_s)
    assert fit_shared_waits(at_once, np.ones(600, bool), held.node, input_mib, SITE_OF_NODE) == ""


def test_those_of_a_site_and_of_all_sites_are_summed() -> None:
    waits = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0], [8.0, 0.0]])
    assert beside(waits, SITE, SITE_OF_NODE).tolist() == [[5.0, 1.0], [10.0, 0.0], [5.0, 1.0], [10.0, 0.0]]
    assert beside(waits, ALL, SITE_OF_NODE).tolist() == [[15.0, 1.0]] * 4


@pytest.mark.slow
@pytest.mark.parametrize("shared", [SITE, ALL])
def test_the_array_code_agrees_with_the_loop(shared: str) -> None:
    log_agrees_with_the_loop(made_encoding(replace(made_cluster(), shared_waits=shared), reward="response"))


def test_an_encoding_keeps_it_says_so_and_says_nothing_without_it() -> None:
    encoding = made_encoding(replace(made_cluster(), shared_waits=SITE))
    assert Encoding.from_json(encoding.to_json()).cluster.shared_waits == SITE
    assert any("other nodes of the same site" in one for one in dependences_of(encoding.cluster))
    assert "shared_waits" not in made_encoding(made_cluster()).to_json()
