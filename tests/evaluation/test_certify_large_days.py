"""Days of very many requests: how much of them a certificate plays, from where, and what it says of it."""

import datetime as dt
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.certify import logged_days
from evaluation.certify.held_out import HeldOutDays
from evaluation.certify.logged_days import MAX_WINDOWS, counted_once, days_windows
from evaluation.certify.measuring import share_played
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from twin.placement.encoding import fit_encoding

STEPS = 16


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("large_days") / "archive"
    simulate("small", 2, "mix", 0, path)
    return Archive(path)


@pytest.mark.slow
def test_of_a_day_of_more_requests_than_are_looked_at_whole_windows_are_played_from_all_over_it(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, encoding = archive.days("requests")[-1], fit_encoding(archive, archive.days("requests")[:1])
    (whole,) = days_windows(archive, encoding, [day], num_steps=STEPS)
    monkeypatch.setattr(logged_days, "looked_at", lambda _: 1_000)
    (some,) = days_windows(archive, encoding, [day], num_steps=STEPS)
    assert MAX_WINDOWS // 2 <= some.num_windows <= MAX_WINDOWS
    assert some.length.max() == STEPS
    assert some.length.mean() > 0.9 * STEPS
    begins_s = some.origin_s + some.arrival_s[0]
    assert np.histogram(begins_s % DAY_S, 6, (0.0, DAY_S))[0].min() > 0
    assert counted_once(some).sum() == pytest.approx(counted_once(whole).sum(), rel=0.5)
    every, chosen = ((one.arrival_s + one.origin_s)[one.valid()].round(3) for one in (whole, some))
    assert len(chosen) < len(every) <= archive.num_rows("requests", day)


def test_a_certificate_says_what_share_of_its_days_was_played() -> None:
    days = (dt.date(2024, 1, 2), dt.date(2024, 1, 3))
    held = HeldOutDays(days, days, ())
    large = SimpleNamespace(num_rows_on=lambda table, days: 3_000_000 * len(days))
    (said,) = share_played(large, held, 16_776, 4_864)
    assert said == (
        "of the held-out days 16,776 of 6,000,000 requests (0.28 %) are forecast, 4,864 of 6,000,000 requests (0.081 %)"
        " are counted in closed loop, in stretches spread evenly over each day"
    )
    small = SimpleNamespace(num_rows_on=lambda table, days: 5_000)
    assert share_played(small, held, 4_900, 4_900) == ()
