"""Days and weeks in seconds, and where clocks count from: 1970-01-01 in UTC."""

from datetime import UTC, datetime, timedelta

HOUR_S = 3_600.0
DAY_S = 86_400.0
DAYS_A_WEEK = 7
WEEK_S = DAYS_A_WEEK * DAY_S
MONDAY_S = 4 * DAY_S
"""The first Monday: weeks begin whole numbers of `WEEK_S` after it."""
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DATE = EPOCH.date()
