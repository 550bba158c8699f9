"""Books kept by events against descriptions of what is in flight, by random events; no JAX."""

import math
from dataclasses import replace

import numpy as np

from offline_rl.runner import Held, Node
from offline_rl.runner.features import LOAD, RECENT_STARTS, RECENT_WAIT
from tests.serving.bundles import drawn_policy
from tests.serving.making import NAMES

_RUNNING, _OLDEST = LOAD.index("num_running"), LOAD.index("oldest_wait_s")


class Requests:
    """What is in flight, and the waits that were seen, with plain numbers."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, Held]] = {}
        self.waits: list[
            tuple[str, float, float]
        ] = []  # node, wait, time of the decision that saw it; inf: none yet

    def started(self, number: int, at_s: float) -> None:
        node, one = self.held[number]
        self.held[number] = node, replace(one, start_s=at_s)
        self.waits.append((node, at_s - one.arrival_s, math.inf))

    def nodes(self, clock_s: float, memory_s: float) -> list[Node]:
        self.waits = [(node, wait_s, min(seen_s, clock_s)) for node, wait_s, seen_s in self.waits]
        found = []
        for name in NAMES:
            fading = [
                (wait_s, math.exp((seen_s - clock_s) / memory_s))
                for node, wait_s, seen_s in self.waits
                if node == name
            ]
            found.append(
                Node(
                    name,
                    [one for node, one in self.held.values() if node == name],
                    recent_wait_s=sum(wait_s * left for wait_s, left in fading),
                    recent_starts=sum(left for _, left in fading),
                )
            )
        return found


def test_books_hold_after_any_events_what_descriptions_of_the_same_hold() -> None:
    policy, random, told, clock_s = drawn_policy(), np.random.default_rng(0), Requests(), 0.0
    books = policy.ledger([Node(name) for name in NAMES], 0.0)
    most = np.zeros(len(LOAD))
    for number in range(900):
        clock_s += float(random.exponential(0.5))
        waiting = [one for one, (_, held) in told.held.items() if held.start_s is None]
        running = [one for one, (_, held) in told.held.items() if held.start_s is not None]
        is_filling = number < 500  # then all of it ends
        kind = random.choice(3, p=(0.5, 0.45, 0.05) if is_filling else (0.0, 0.3, 0.7))
        if kind == 0:
            node, amounts = str(random.choice(NAMES)), random.uniform(0.1, 2.0, 3).tolist()
            held = Held(clock_s, None, float(random.exponential(60.0)), "resize", *amounts)
            told.held[number] = node, held
            books.hold(number, node, held)
        elif kind == 1 and waiting:
            one = int(random.choice(waiting))
            told.started(one, clock_s)
            assert books.start(one, clock_s)
        elif told.held:
            one = int(random.choice(running or waiting))
            del told.held[one]
            assert books.finish(one)
        if number % 7 == 0:
            nodes = told.nodes(clock_s, policy.setting.memory_s)
            _, expected, _ = policy.read(nodes, clock_s)
            found = books.load(clock_s)
            found[_OLDEST] = np.maximum(found[_OLDEST], 0.0)  # nothing waits
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
            most = np.maximum(most, expected.sum(axis=1))
    assert most[_RUNNING] > 2 * 64  # room is made for more than once
    assert min(most[_OLDEST], most[RECENT_WAIT], most[RECENT_STARTS]) > 1.0
    for one in list(told.held):
        assert books.finish(one)
    assert np.all(books.load(clock_s)[:_OLDEST] == 0.0)  # to the bit: of sums nothing is left by rounding
