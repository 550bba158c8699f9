"""The alarm: quiet on days like the training days, loud within 200 decisions when a node's speed halves."""

from functools import cache

import numpy as np
import pytest

from offline_rl.alarm import alarm_facts
from offline_rl.contract import AlarmFacts
from offline_rl.runner.watch import FASTER, KINDS, SLOWER, UNLIKE, Watch, largest

NUM_NODES, DAY = 5, 1_000
RARE = 0.02


class Days:
    """Made days: every decision is a request, unlike the others now and then, and a run on a drawn node.

    Run times scatter by a factor of 1.6 and busy hours stretch them all by up to a fifth, so they are not independent.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def drawn(self, num_days: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        num = num_days * DAY
        unlike, node = self.rng.random(num) < RARE, self.rng.integers(NUM_NODES, size=num)
        busy = np.repeat(self.rng.normal(size=num // 50), 50) * 0.06
        return unlike, np.exp(self.rng.normal(size=num) * np.log(1.6) + busy), node


@cache
def facts(seed: int = 0, num_days: int = 10) -> AlarmFacts:
    found = alarm_facts(*Days(seed).drawn(num_days), num_days)
    assert found is not None
    return found


def first_alarm(told: AlarmFacts, unlike: np.ndarray, ratio: np.ndarray, node: np.ndarray) -> tuple[int, str]:
    """The decision at which an alarm is raised, and which; -1 without one."""
    watch = Watch(told)
    for place in range(len(unlike)):
        watch.decided(bool(unlike[place]))
        watch.ran(f"node {node[place]}", float(ratio[place]))
        if watch.alarms():
            return place, watch.alarms()[0]
    return -1, ""


@pytest.mark.slow
def test_false_alarms_on_at_most_one_day_in_a_hundred() -> None:
    num_days, days = 100, Days(1)
    false = sum(first_alarm(facts(seed % 3), *days.drawn(1))[0] >= 0 for seed in range(num_days))
    assert false <= 0.01 * num_days


@pytest.mark.parametrize(
    ("factor", "words"), [(2.0, "node 3 take much longer"), (0.5, "node 3 take much shorter")]
)
def test_a_node_that_changes_its_speed_is_named_within_200_decisions(factor: float, words: str) -> None:
    days, found = Days(2), []
    for _ in range(40):
        unlike, ratio, node = days.drawn(1)
        place, said = first_alarm(facts(), unlike, np.where(node == 3, factor * ratio, ratio), node)
        assert words in said
        found.append(place)
    assert max(found) < 200


def test_requests_that_have_become_others_are_told() -> None:
    _, ratio, node = Days(3).drawn(1)
    place, said = first_alarm(facts(), np.arange(DAY) % 4 == 0, ratio, node)
    assert 0 <= place < 200
    assert "unlike those of training" in said


def test_an_alarm_ends_when_its_cause_has_ended() -> None:
    told, watch = facts(), Watch(facts())
    for _ in range(1_000):
        watch.decided(True)
        watch.ran("a", 8.0)
    levels = watch.levels()
    assert levels[UNLIKE] == levels[SLOWER] == 2.0
    assert levels[FASTER] == 0.0
    for _ in range(1_000):
        watch.decided(False)
        watch.ran("a", 1.0)
    assert watch.levels() == dict.fromkeys(KINDS, 0.0)
    assert watch.alarms() == ()
    assert told.run_limit is not None


def test_what_is_not_known_raises_no_alarm() -> None:
    few = alarm_facts(np.zeros(50, bool), np.full(50, 1.0), np.zeros(50, int), 1)
    assert few is not None
    assert few.run_limit is None
    assert alarm_facts(np.zeros(0, bool), np.zeros(0), np.zeros(0, int), 1) is None
    for told in (few, None):
        watch = Watch(told)
        for _ in range(100):
            watch.ran("a", 100.0)
            watch.ran("a", float("nan"))
        assert watch.levels()[SLOWER] == 0.0
        assert watch.alarms() == ()


def test_the_largest_sum_is_never_below_0() -> None:
    assert largest([-1.0, 2.0, -5.0, 1.0, 1.5]) == 2.5
    assert largest([]) == 0.0
