"""A queue from Python: the twin that the command line fits, fitted by the front door."""

import datetime as dt

import numpy as np

from logs_schema import Archive
from logs_schema.logged_days import LoggedDays
from twin import fit
from twin.ordering.persistence import load_queue_twin


def test_the_twin_is_that_of_the_command_line(queue_made):
    folder, _ = queue_made
    made = load_queue_twin(folder / "twin")
    first = dt.date(1970, 1, 1) + dt.timedelta(days=made.first_day)
    days = LoggedDays(Archive(folder / "archive"), (first, first + dt.timedelta(days=made.num_days - 1)))
    twin = fit("ordering", days)
    assert (twin.pool, twin.first_day, twin.num_days) == (made.pool, made.first_day, made.num_days)
    np.testing.assert_array_equal(twin.population.run_s, made.population.run_s)
    np.testing.assert_array_equal(twin.past.arrival_s, made.past.arrival_s)
