"""A queue from Python: the twin that the command line fits, fitted by the front door."""

import datetime as dt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import compare, shifted_days
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.problems.configuration import OrderConfig, WeeksConfig
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.logged_days import LoggedDays
from offline_rl import order_index, order_ppo, train
from twin import fit
from twin.ordering.persistence import load_queue_twin


@pytest.mark.slow
def test_the_twin_is_that_of_the_command_line(queue_made):
    folder, _ = queue_made
    made = load_queue_twin(folder / "twin")
    first = dt.date(1970, 1, 1) + dt.timedelta(days=made.first_day)
    days = LoggedDays(Archive(folder / "archive"), (first, first + dt.timedelta(days=made.num_days - 1)))
    twin = fit("ordering", days)
    assert (twin.pool, twin.first_day, twin.num_days) == (made.pool, made.first_day, made.num_days)
    np.testing.assert_array_equal(twin.population.run_s, made.population.run_s)
    np.testing.assert_array_equal(twin.past.arrival_s, made.past.arrival_s)


def first_come(_key, _observation, legal):
    return jnp.argmax(legal, axis=0).astype(jnp.int32)


@pytest.mark.slow
def test_ten_lines_from_an_archive_to_a_table(queue_made):
    split = shifted_days(Archive(queue_made[0] / "archive"), "0d", num_days=28)
    twin = fit("ordering", split.train)
    index = train(order_index(), twin, seeds=range(2))
    weeks = WeeksConfig(shifts="0d", num_test_days=2, num_drain_days=1)
    found = compare(
        {"index": index, "mine": first_come},
        twin,
        split.test,
        order=OrderConfig(weeks=weeks, num_twin_weeks=1),
        intervals=IntervalConfig(num_replicates=200),
    )
    table = found.table("bounded_slowdown")
    assert all(f"│ {name} " in table for name in ("index", "mine", "sjf+easy"))
    (played,) = (run for run in found.comparison.policies if run.name == "index")
    assert played.kind == "user"
    with pytest.raises(ConfigError, match="order_index does not learn from str"):
        train(order_index(), "queue")
    with pytest.raises(ConfigError, match="cannot be compared from Python"):
        compare({}, "queue", split.test)


@pytest.mark.slow
def test_ppo_starts_from_an_index(queue_made):
    split = shifted_days(Archive(queue_made[0] / "archive"), "0d", num_days=28)
    twin = fit("ordering", split.train)
    index = train(order_index(), twin)
    sizes = {
        "num_updates": 1,
        "look_every": 1,
        "num_streams": 8,
        "num_steps": 32,
        "num_episodes": 2,
        "num_held_out": 1,
    }
    order = train(order_ppo(start=index, **sizes), twin, seeds=(1, 2))
    assert order.seeds == (1, 2)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(order.params)} == {2}
