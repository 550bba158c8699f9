"""The ladder of a queue, which takes another order than the rule only where past weeks say so."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering import ladder, order_candidates
from evaluation.problems.ordering.index_orders import index_exponents, index_name, play_index
from evaluation.problems.ordering.ladder import choose
from evaluation.problems.ordering.log_gaps import head_in_words, lacking_in_words
from evaluation.problems.ordering.order_candidates import (
    INDICES,
    USUAL,
    OrderCandidate,
    candidates,
    index_candidates,
    past_indices,
)
from evaluation.problems.ordering.past_weeks import (
    BUSY_LOAD,
    MOST_WEEKS,
    OrderOutcome,
    busy_pace,
    hastened,
    known_at,
    num_refereed_days,
    past_weeks,
    seen_in,
    together,
)
from evaluation.problems.ordering.refereeing import (
    Gain,
    fairness,
    fairness_ratios,
    gain_of,
    is_allowed,
    longest_ratios,
)
from evaluation.problems.ordering.weeks import anchor_days, cut_week, log_days
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from offline_rl.ordering.index import some_index
from tests.ordering.predicted_jobs import FIRST_COME, jobs_of
from twin.ordering.predicted import PredictedOrder, replay_predicted
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SJF
from twin.ordering.types import Pool


def seen(slowdown, wait_s=None, users=1, *, is_faster=False):
    slowdown = np.asarray(slowdown, float)
    wait = slowdown if wait_s is None else np.asarray(wait_s, float)
    jobs = np.arange(len(slowdown))
    return OrderOutcome(
        slowdown, wait, jobs // 10, jobs % users, np.full(len(jobs), is_faster), jobs // 10 // 2 * 7
    )


HELD = np.full(80, 10.0) * np.random.default_rng(0).lognormal(0.0, 0.3, 80)


@pytest.fixture
def chosen_among(monkeypatch):
    """The ladder's choice among named outcomes of the past weeks; `rule...` are rules."""

    def among(**outcomes):
        monkeypatch.setattr(ladder, "seen_in", lambda _, play, pool=None: play if pool else play.at(False))
        tried = [OrderCandidate(name, "", found, name.startswith("rule")) for name, found in outcomes.items()]
        return choose([None], [None], tried, Pool(4.0))

    return among


def test_an_order_is_taken_where_every_half_week_says_so_and_not_where_one_does(chosen_among):
    better, lucky = HELD * 0.8, HELD.copy()
    lucky[:10] *= 0.02  # as much better in the mean, by one half week
    assert chosen_among(rule=seen(HELD), rule_worse=seen(HELD * 2), better=seen(better)).order == "better"
    found = chosen_among(rule=seen(HELD), lucky=seen(lucky))
    assert (found.order, found.rule, found.gain) == ("rule", "rule", 0.0)
    assert "too few jobs ended" in found.words  # no index was among them


def test_longer_waits_at_the_end_and_unfairness_forbid_an_order_where_they_are_sure(chosen_among):
    late = 1.2 * HELD  # and less slowdown
    uneven = np.where(np.arange(80) % 8 == 0, HELD, 0.05 * HELD)
    # The longest wait of all, in one week of four
    once = np.where(np.arange(80) == 5, 2.0 * HELD.max(), HELD)
    for name in ("better", USUAL):
        assert chosen_among(**{"rule": seen(HELD, HELD), name: seen(HELD * 0.5, late)}).order == "rule"
        assert chosen_among(**{"rule": seen(HELD, HELD), name: seen(HELD * 0.5, once)}).order == name
        assert (
            chosen_among(**{"rule": seen(HELD, users=8), name: seen(uneven, HELD, users=8)}).order == "rule"
        )
    assert "longest waits" in chosen_among(**{"rule": seen(HELD), USUAL: seen(HELD * 0.5, late)}).words
    assert (
        "users less evenly"
        in chosen_among(**{"rule": seen(HELD, users=8), USUAL: seen(uneven, HELD, users=8)}).words
    )


def test_the_index_replaces_the_rule_unless_past_weeks_speak_against_it_by_more_than_the_prior(chosen_among):
    """The error of the gain is 0 here, so the evidence alone counts; with noise the prior does too."""
    for mine, order in ((0.999 * HELD, USUAL), (1.001 * HELD, "rule"), (1.2 * HELD, "rule")):
        assert chosen_among(**{"rule": seen(HELD), USUAL: seen(mine, HELD)}).order == order
    half_weeks = np.repeat(np.exp(0.6 * np.array([1, -1, 1, -1, 1, -1, 1, -1]) + 0.02), 10)
    noisy = chosen_among(**{"rule": seen(HELD), USUAL: seen(HELD * half_weeks, HELD)})
    assert noisy.gain < 0.0  # a little worse, by noise
    assert noisy.order == USUAL
    surely = chosen_among(**{"rule": seen(HELD), USUAL: seen(0.9 * HELD), "member": seen(0.5 * HELD)})
    assert (surely.rule, surely.order) == ("rule", "member")


def test_a_gain_is_shrunk_towards_other_logs_by_the_weight_of_its_error():
    gain = Gain(-0.1, 0.15, 8)
    assert gain.shrunk(0.1, 0.15) == pytest.approx(0.0)  # two equal errors: half way
    assert gain.shrunk(0.1, 0.3) == pytest.approx(-0.1 * 0.8 + 0.1 * 0.2)
    assert gain.low(2) == pytest.approx(-0.1 - 1.8946 * 0.15, abs=1e-3)  # Student's t, 7 degrees, 95 %
    assert gain.low(16) < gain.low(2)
    assert Gain(0.5, np.inf, 2).shrunk(0.1, 0.15) == Gain(0.5, np.inf, 2).low(2) == -np.inf


ONCE = np.ones((1, 4), int)
"""Every week once."""


def both(idle, busy):
    """Outcomes of the weeks as they were, and of the same played faster."""
    return together([seen(idle), seen(busy, is_faster=True)])


def test_weeks_in_which_nobody_waits_are_decided_by_the_same_weeks_played_faster(chosen_among):
    idle = np.ones(80)
    found = chosen_among(
        **{
            "rule": both(idle, HELD),
            "rule_other+easy": both(idle, 0.5 * HELD),
            "member": both(idle, 0.9 * HELD),
        }
    )
    assert (found.rule, found.order) == ("rule", "rule_other+easy")
    worse = chosen_among(rule=both(HELD, HELD), member=both(1.05 * HELD, 0.3 * HELD))
    assert worse.order == "rule"  # what is worse in the weeks as they were is not made up for


def test_gain_and_constraints_are_geometric_means_over_half_weeks_and_paces():
    """Half the slowdown in one half week and double in another is no gain; a week of one pace alone counts in full."""
    factor = np.repeat([0.5, 2.0, 0.5, 2.0], 20)
    assert gain_of(seen(HELD * factor), seen(HELD)).mean == pytest.approx(0.0, abs=1e-12)
    assert gain_of(both(HELD, 0.25 * HELD), both(HELD, HELD)).mean == pytest.approx(0.5 * np.log(4.0))
    assert longest_ratios(both(HELD, 4.0 * HELD), both(HELD, HELD), ONCE) == pytest.approx([2.0])
    one_pace = together([seen(HELD), seen(HELD[:40], is_faster=True)])
    assert gain_of(one_pace._replace(slowdown=one_pace.slowdown / 2.0), one_pace).mean == pytest.approx(
        np.log(2.0)
    )
    even, uneven = seen(np.ones(80), users=2), seen(np.tile([1.0, 3.0], 40), users=2)
    assert fairness_ratios(uneven, even, ONCE) == pytest.approx([(1.0 + 3.0) ** 2 / (2.0 * (1.0 + 9.0))])
    unknown = seen(HELD)._replace(agent=np.full(80, -1))
    assert fairness_ratios(unknown, unknown, ONCE) == [1.0]


def test_ratios_of_a_sample_of_weeks_are_those_of_its_jobs_written_out():
    """Week 1 twice and week 3 once, of weeks with different waits and users."""
    rng = np.random.default_rng(1)
    mine, theirs = (seen(HELD * rng.lognormal(0.0, 1.0, 80), 1e3 * rng.random(80), users=3) for _ in range(2))
    rows = np.concatenate([np.arange(20, 40), np.arange(20, 40), np.arange(60, 80)])
    counts = np.array([[0, 2, 0, 1]])
    waits = [np.quantile(one.wait_s[rows], 0.99, method="inverted_cdf") for one in (mine, theirs)]
    assert longest_ratios(mine, theirs, counts) == pytest.approx([waits[0] / waits[1]])
    blocks = [np.arange(first, first + 10) for first in (20, 30, 20, 30, 60, 70)]
    logs = [np.log(fairness(mine, block)) - np.log(fairness(theirs, block)) for block in blocks]
    assert fairness_ratios(mine, theirs, counts) == pytest.approx([np.exp(np.mean(logs))])


def test_two_weeks_are_too_few_for_sure_harm():
    early, late = seen(HELD[:40], HELD[:40]), seen(HELD[:40], 9.0 * HELD[:40])
    assert is_allowed(late, early)
    assert not is_allowed(seen(HELD, 9.0 * HELD), seen(HELD, HELD))


@pytest.mark.slow
def test_a_hastened_week_has_the_same_jobs_in_less_time(queue_made):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    pool = Pool(float(jobs.processors.max()), easy=True)
    anchor = log_days(jobs)[0] + 14
    (week,) = past_weeks(known_at(jobs, anchor), pool, anchor, 7, WeeksConfig())
    fast = hastened(week, 0.5)
    later = week.jobs.arrival_s > 0.0
    np.testing.assert_allclose(fast.jobs.arrival_s[later], 0.5 * week.jobs.arrival_s[later])
    np.testing.assert_array_equal(fast.jobs.arrival_s[~later], week.jobs.arrival_s[~later])
    play = candidates(pool)[0].play
    outcome = seen_in([week], play, pool)
    assert outcome.at(True).slowdown.mean() >= outcome.at(False).slowdown.mean()
    work = (week.jobs.processors * week.jobs.run_s)[week.counted].sum()
    load = work / (busy_pace(week, pool) * 7 * DAY_S * pool.processors)
    assert load == pytest.approx(BUSY_LOAD)
    assert busy_pace(week, Pool(pool.processors / 100.0)) == 1.0  # a week that offers more is played once
    full = seen_in([week._replace(num_days=0.001)], play, pool)
    assert not full.is_faster.any()


def test_what_a_log_leaves_out_is_said_and_jobs_larger_than_the_pool_count_nowhere():
    rows = [(day * DAY_S, 2 + 6 * (day % 2), 100, 50, 1) for day in range(7)]
    rows += [(7 * DAY_S, 8, 100, 50, 1), (7 * DAY_S + 49, 2, 100, 50, 1)]
    jobs = jobs_of(*rows)
    assert lacking_in_words(jobs, Pool(8.0)) == []
    (large,) = lacking_in_words(jobs._replace(run_s=jobs.run_s + 3 * DAY_S), Pool(4.0))
    assert "4 of 9 jobs request more" in large
    week, _ = cut_week(jobs, Pool(4.0), np.full(9, np.nan), 0, WeeksConfig(num_drain_days=0))
    assert week.counted.sum() == 4
    counts = ("no_request", 9), ("no_processors", 20), ("no_run_time", 0)
    bare = jobs._replace(agent=np.full(9, -1), counts=counts)
    left_out, request, user = lacking_in_words(bare, Pool(8.0))
    assert "20 have no processors: left out" in left_out
    assert "sjf is fcfs" in request
    assert "name the users" in user


def test_a_pool_with_room_for_all_jobs_when_they_arrive_is_said_to_need_no_order():
    jobs = jobs_of((0, 4, 100, 50, 1), (49, 4, 100, 50, 1), (50, 4, 100, 50, 1), (60, 9, 100, 50, 1))
    large, idle = lacking_in_words(jobs, Pool(8.0))
    assert "1 of 4 jobs request more" in large
    assert "the other jobs" in idle
    assert "never hold more than 8 at once" in idle
    assert "smaller" not in idle  # where jobs are too large for it
    (smaller,) = head_in_words(lacking_in_words(jobs, Pool(20.0)))
    assert smaller.startswith("The pool has 20")
    assert smaller.endswith("is the pool smaller (--processors)?")
    assert head_in_words([large, idle]) == [idle.replace("the", "The", 1) + "."]
    assert not any("at once" in note for note in lacking_in_words(jobs, Pool(7.0)))


def test_without_requests_and_users_every_rule_and_member_still_orders():
    jobs = jobs_of(*((60.0 * job, 1 + job % 3, 1000, 50 + 20 * job, 1) for job in range(12)))
    bare, pool = jobs._replace(agent=np.full(12, -1)), Pool(4.0, easy=True)
    for order in (PredictedOrder(1.0, 1.0, 0.06, reserves=False), FIRST_COME):
        believed = replay_predicted(bare, pool, replace(order, predicts=False)).start_s
        np.testing.assert_array_equal(replay_predicted(bare, pool, order).start_s, believed)
    np.testing.assert_array_equal(replay(bare, pool, SJF).start_s, replay(bare, pool, FCFS).start_s)


def test_two_half_weeks_are_too_few_to_leave_the_rule():
    assert gain_of(seen(HELD[:20] * 0.5), seen(HELD[:20])).low(4) == -np.inf


def test_past_weeks_hold_nothing_of_what_came_later(queue_made):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    pool, anchor = Pool(float(jobs.processors.max()), easy=True), log_days(jobs)[0] + 35
    weeks = past_weeks(known_at(jobs, anchor), pool, anchor, 28, WeeksConfig())
    begin_s = anchor * DAY_S - jobs.origin_us / 1e6
    later = jobs._replace(run_s=np.where(jobs.arrival_s >= begin_s, 7.0 * jobs.run_s, jobs.run_s))
    assert len(weeks) == 4
    again = past_weeks(known_at(later, anchor), pool, anchor, 28, WeeksConfig())
    for one, other in zip(weeks, again, strict=True):
        np.testing.assert_array_equal(one.jobs.run_s, other.jobs.run_s)
        assert one.jobs.arrival_s.max() < 7 * DAY_S + 3 * DAY_S
        assert one.first_day + 7 <= anchor
    assert len({candidate.name for candidate in candidates(pool)}) == len(candidates(pool))


def test_past_weeks_are_played_under_indices_of_earlier_days_alone(queue_made, monkeypatch):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    monkeypatch.setattr(order_candidates, "learn_index", lambda _seed, samples: (samples, 0.0))
    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    pool, first = Pool(float(jobs.processors.max()), easy=True), log_days(jobs)[0]
    assert [num_refereed_days(jobs, first + days) for days in (14, 20, 21, 28, 900)] == [
        0,
        0,
        7,
        14,
        7 * MOST_WEEKS,
    ]
    weeks = past_weeks(known_at(jobs, first + 49), pool, first + 49, 35, WeeksConfig())
    found = past_indices(jobs, pool, weeks, 28, 0)
    assert len({id(samples) for samples in found.values()}) == 2  # the newest four weeks share one
    assert found[weeks[1].first_day] is found[weeks[4].first_day]
    begin_s = weeks[1].first_day * DAY_S - jobs.origin_us / 1e6
    later = jobs.logged_start_s + jobs.run_s >= begin_s
    again = past_indices(
        jobs._replace(run_s=np.where(later, 3.0 * jobs.run_s, jobs.run_s)), pool, weeks, 28, 0
    )
    for one, other in zip(found[weeks[1].first_day], again[weeks[1].first_day], strict=True):
        np.testing.assert_array_equal(one[1], other[1])  # labels
        np.testing.assert_array_equal(one[0], other[0])
    assert past_indices(jobs, pool, weeks, 0, 0) == {}  # nothing to learn from
    index = some_index()
    usual, *_ = index_candidates(pool, {week.first_day: index for week in weeks})
    starts = [play_index(index._replace(exponents=one), pool, weeks[1]) for one in INDICES[:2]]
    np.testing.assert_array_equal(usual.play(weeks[1]), starts[0])


def test_the_name_of_an_index_gives_its_exponents_back():
    for exponents in INDICES:
        np.testing.assert_array_equal(index_exponents(index_name(exponents)), exponents)
    assert index_exponents("saf+easy") is index_exponents("predicted(1,1,0.06)") is None


def test_anchors_and_their_test_days_lie_between_two_dates(queue_made):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    (first, end), shifts = log_days(jobs), "0d,7d"
    last = date_of(first + 69)
    part = WeeksConfig(shifts=shifts, num_anchors=3, between=f"{date_of(first + 40)}..{last}")
    assert anchor_days(jobs, part) == [first + 40, first + 48, first + 56]  # 7 days, 7 days on, ends the span
    # What is exported is of the newest days
    assert anchor_days(jobs, replace(part, num_anchors=1)) == [first + 56]
    whole = WeeksConfig(shifts=shifts, num_anchors=2)
    wide = replace(whole, between="1990-01-01..2090-01-01")
    assert anchor_days(jobs, whole) == anchor_days(jobs, wide) == [first + 28, end - 14]
    with pytest.raises(ConfigError, match="too few for one anchor"):
        anchor_days(jobs, replace(part, between=f"{date_of(first + 60)}..{last}"))
    for text in ("1997-03-10", "1997-03-10..1997-02-10", "a..b"):
        with pytest.raises(ConfigError, match="no range of days"):
            WeeksConfig(between=text)
