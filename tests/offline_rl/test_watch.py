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
    few = alarm_facts(np.zeros(50, bool), np.linspace(0.5, 2.0, 199), np.zeros(199, int), 1)  # too few runs
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


def test_limits_are_what_training_came_to_and_a_margin_that_shrinks_with_its_days() -> None:
    """Busy days of training raise the limit of a sum of their own: none of them would have been an alarm."""
    random, num = np.random.default_rng(4), 400
    node = np.arange(num) % 2
    ratio = np.where(node == 1, np.where(np.arange(num) % 200 < 60, 4.0, 0.8), 1.0)
    ratio = ratio * np.exp(0.1 * random.normal(size=num))
    few, many = (alarm_facts(np.arange(num) < 40, ratio, node, days) for days in (2, 200))
    assert few is not None
    assert many is not None
    assert few.run_limit is not None
    assert many.run_limit is not None
    most = 0.0
    for one in (0, 1):  # the sums of a node's own runs alone
        place = np.searchsorted(few.run_edges, np.log(ratio[node == one]))
        for weights in (few.slower_weights, few.faster_weights):
            total = 0.0
            for at in place.tolist():
                total = max(total + weights[at], 0.0)
                most = max(most, total)
    assert most > np.log(10_000)  # else the least limit would hold
    assert many.run_limit == pytest.approx(most + 1.0)
    assert few.run_limit == pytest.approx(most + 1.0 + np.log(50.0))  # of 2 days, one in 100
    assert few.unlike_limit == pytest.approx(40 * few.unlike_weights[1] + 1.0 + np.log(50.0))


def test_requests_are_frequent_five_times_as_often_within_bounds() -> None:
    for num_unlike, risen in (
        (19, 0.1),
        (0, 0.051),
        (199, 0.5),
        (949, 0.95),
    ):  # of 998: shares of 20, 1, 200, 950
        found = alarm_facts(np.arange(998) < num_unlike, np.zeros(0), np.zeros(0, int), 1)
        assert found is not None
        share = (num_unlike + 1) / 1_000
        assert found.unlike_share == pytest.approx(share)
        assert found.unlike_weights == pytest.approx(
            (np.log((1.0 - risen) / (1.0 - share)), np.log(risen / share))
        )


def test_an_alarm_is_raised_at_the_limit() -> None:
    told = AlarmFacts(0.1, (-0.5, 1.0), 4.0)
    watch = Watch(told)
    for number in range(1, 5):
        watch.decided(True)
        assert bool(watch.alarms()) == (number == 4)
    watch.decided(False)
    assert watch.levels()[UNLIKE] == pytest.approx(3.5 / 4.0)
    assert watch.alarms() == ()
