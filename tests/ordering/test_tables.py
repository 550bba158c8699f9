"""Tables of running and waiting jobs are as large as the log needs, and what cannot be played is refused at once."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.problems.configuration import OrderConfig, WeeksConfig
from evaluation.problems.ordering.running import refuse_unplayable
from logs_schema.errors import ConfigError
from offline_rl.ordering.learning import anchor_data
from offline_rl.ordering.programs import OrderTrainingConfig, problem_config
from offline_rl.ordering.tables import occupancy_of, widened, with_tables
from tests.ordering.making import alike_weeks, jobs_of
from twin.ordering.population import fit_population
from twin.ordering.types import Pool

CONFIG = OrderTrainingConfig(num_episodes=1, num_held_out=1, num_judged=48)
NUM_RUNNING = 606


@pytest.fixture(scope="module")
def crowded():
    """Five weeks on 640 processors, where 606 jobs of one processor run at once, renewed every half day."""
    rows = [
        (43_200 * half + 3 * number, 1, 43_100, 43_000, user)
        for half in range(70)
        for number, user in enumerate(np.arange(NUM_RUNNING) % 5)
    ]
    return jobs_of(
        *(row[:4] for row in rows), logged_start_s=[row[0] for row in rows], agent=[row[4] for row in rows]
    )


def test_the_crowd_of_a_schedule():
    jobs = jobs_of((0, 1, 9, 9), (1, 1, 9, 4), (1, 1, 9, 9), (5, 1, 9, 9), (6, 1, 9, 9))
    assert occupancy_of(jobs, np.array([0.0, 1.0, 9.0, 10.0, np.nan])) == (2, 2)  # who ends makes room
    assert occupancy_of(jobs, np.full(5, np.nan)) == (0, 0)


@pytest.mark.slow
def test_a_log_where_606_jobs_run_at_once_is_learned_from(crowded):
    pool = Pool(640.0)
    config = with_tables(CONFIG, crowded, pool)
    assert (config.running_size, config.queue_size) == (1024, 256)
    population = fit_population(crowded, 7, 14)
    ground = anchor_data(crowded, population, pool, 21, config, 14)
    assert int((ground.train.running.processors > 0).sum(axis=0).max()) > 128


def test_sizes_that_are_named_are_kept_or_refused(crowded):
    pool = Pool(640.0)
    assert with_tables(replace(CONFIG, running_size=700, queue_size=99), crowded, pool).running_size == 700
    with pytest.raises(ConfigError, match="606 jobs run at once") as refused:
        with_tables(replace(CONFIG, running_size=128), crowded, pool)
    assert "running_size" in str(refused.value)
    assert "at most 128" in str(refused.value)


def test_a_crowd_beyond_any_table_is_refused_with_what_needs_none():
    jobs = jobs_of(*[(0, 1, 9, 9)] * 4097, logged_start_s=[9 * place for place in range(4097)])
    assert with_tables(CONFIG, jobs, Pool(4096.0)).running_size == 4096
    with pytest.raises(
        ConfigError, match="4,097 jobs run at once in the log, packed as the simple rules do"
    ) as refused:
        with_tables(CONFIG, jobs, Pool(5000.0))
    assert "--index-only" in str(refused.value)


def test_a_small_log_keeps_the_least_tables_and_a_policy_grows_with_its_weeks(crowded):
    jobs = jobs_of((0, 1, 9, 9), (1, 1, 9, 4), logged_start_s=[0, 1])
    small = with_tables(CONFIG, jobs, Pool(4.0))
    assert (small.running_size, small.queue_size) == (128, 256)
    assert widened(small, crowded, Pool(640.0)).running_size == 1024
    assert widened(replace(small, running_size=2048), jobs, Pool(4.0)).running_size == 2048


def test_problems_without_sizes_have_the_usual_ones():
    assert problem_config(OrderTrainingConfig()).running_size == 128


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Folder of a log of five weeks."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "log.swf").write_text(alike_weeks(num_days=35))
    return folder


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[order.weeks]\nnum_train_days = 7\nshifts = "0d,60d"\n', "too few for one anchor"),
        ("", "in [order.weeks]"),  # of one pool the queue's order is learned, as by `fit`
        (
            '[order]\n[order.weeks]\nnum_train_days = 7\nshifts = "0d"\n[order.training]\nrunning_size = 1\n',
            "run at once",
        ),
    ],
)
def test_a_job_refuses_before_it_learns_anything(job, tmp_path, capsys, settings, said):
    (tmp_path / "job.toml").write_text(f'[log]\nformat = "swf"\npaths = ["{job / "log.swf"}"]\n{settings}')
    assert (
        cli.main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "work"), "--no-progress"]) == 2
    )
    assert said in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "work").iterdir() if not path.name.startswith(".")] == [
        "archive"
    ]


def test_what_orders_may_be_learned_of_is_not_refused(queue_made):
    refuse_unplayable(
        queue_made[0] / "archive", OrderConfig(weeks=WeeksConfig(num_train_days=7, shifts="0d"))
    )
