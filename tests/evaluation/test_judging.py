"""Judges: history judged by replay is the log itself, padding changes nothing, one program serves all."""

import jax
import numpy as np
import pytest

from evaluation.baselines import BASELINES
from evaluation.comparison.metrics import ACCEPTED_RATIO, MEAN_WAIT, ON_TIME
from evaluation.judges.config import JudgeConfig
from evaluation.judges.judge import (
    MOST_LENT,
    RARE,
    Candidate,
    Evaluation,
    common_shape,
    rarely_tried,
    replay_judge,
    replay_program,
    window_units,
)
from evaluation.judges.players import as_logged, players_of
from logs_schema.errors import ConfigError
from offline_rl.networks import actor
from offline_rl.recipes.schedulers import example_for
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import EncodedRows, cut_windows
from twin.placement.encoding import Encoding
from twin.placement.replay import times_lent
from twin.placement.types import COMPLETED, REJECTED
from twin.placement.windows import Windows, pad_windows, with_room


@pytest.fixture(scope="module")
def logged() -> tuple[EncodedRows, Encoding, list[Windows]]:
    cluster = made_cluster()
    encoding = made_encoding(cluster, depth=40)
    rows = made_rows(np.random.default_rng(5), cluster, 150)
    rows.request.rule[:] = 0
    rows.request.demand[:] = 0.1
    early = np.arange(150) < 90
    return rows, encoding, [cut_windows(rows, part, encoding, num_steps=64) for part in (early, ~early)]


@pytest.fixture(scope="module")
def program(logged: tuple) -> tuple:
    _, encoding, windows = logged
    network = actor(example_for(encoding, windows[0]), hidden=(8,))
    players = players_of(encoding.cluster, network, BASELINES)
    return replay_program(encoding, players), network.init(jax.random.key(0))


def assert_is_the_log(result: Evaluation, rows: EncodedRows) -> None:
    """The evaluation is that of the first 90 rows as they were logged."""
    part = slice(0, 90)
    settled = np.isfinite(rows.finish_s[part]) | (rows.status[part] == REJECTED)
    with np.errstate(invalid="ignore"):
        within = rows.finish_s[part] - rows.arrival_s[part] <= rows.request.deadline_s[part]
    on_time = within & (rows.status[part] == COMPLETED)
    started = np.isfinite(rows.start_s[part])
    assert result.agreement == 1.0
    assert result.out_of_support == 0.0
    assert result.num_illegal == 0
    assert result.decisions.num_rows == 90
    assert result.decisions.num_censored == (~settled).sum()
    assert ON_TIME.compute(result.decisions) == pytest.approx(on_time[settled].mean())
    waits = (rows.start_s - rows.arrival_s)[part][started & settled]
    assert MEAN_WAIT.compute(result.decisions) == pytest.approx(waits.mean(), abs=0.5)
    assert ACCEPTED_RATIO.compute(result.decisions) < 1.0


@pytest.mark.slow
def test_history_judged_by_replay_is_the_log(logged: tuple, program: tuple) -> None:
    rows, encoding, windows = logged
    run, params = program
    judge = replay_judge(run, encoding, windows[0], common_shape(windows))
    tried = [Candidate(kind, kind, params) for kind in run.kinds]
    assert_is_the_log(judge.evaluate(jax.random.key(1), tried)[run.kinds.index("history")], rows)


@pytest.mark.slow
def test_history_is_the_log_also_on_days_whose_queues_are_longer_than_those_of_training(
    logged: tuple,
) -> None:
    rows, _, _ = logged
    encoding = made_encoding(made_cluster(), depth=2)
    windows = cut_windows(rows, np.arange(150) < 90, encoding, num_steps=64)
    program = replay_program(encoding, {"history": as_logged})
    judge = replay_judge(program, encoding, windows, common_shape([windows]))
    (result,) = judge.evaluate(jax.random.key(1), [Candidate("history", "history", None)])
    assert_is_the_log(result, rows)


@pytest.mark.slow
def test_choices_that_the_log_hardly_took_for_a_service_are_counted(logged: tuple, program: tuple) -> None:
    rows, encoding, (windows, _) = logged
    num_nodes, valid, service = encoding.cluster.num_nodes, windows.valid(), rows.request.service[:90]
    counts = np.array(
        [
            [np.sum((rows.node[:90] == node) & (service == one)) for one in service]
            for node in range(num_nodes)
        ]
    )
    rare = rarely_tried(windows, num_nodes)
    np.testing.assert_array_equal(rare[:, valid], (counts < RARE)[:, windows.row[valid]])
    assert 0.05 < rare[:, valid].mean() < 0.95
    run, params = program
    judge = replay_judge(run, encoding, windows, common_shape([windows]))
    (result,) = judge.evaluate(jax.random.key(1), [Candidate("random", "random", params)])
    chosen, row = result.decisions.node, windows.row[valid]
    nodes = np.full(valid.shape, -1)
    nodes[valid] = chosen  # in the order of the decisions
    lent = times_lent(windows)(nodes)[valid] > MOST_LENT
    expected = ((counts < RARE)[chosen, row] | lent) & (chosen != rows.node[row])
    assert 0.0 < expected.mean() < 1.0
    assert result.out_of_support == pytest.approx(expected.mean())


def test_nodes_that_a_queue_hardly_took_are_rare_though_its_service_ran_there(logged: tuple) -> None:
    rows, encoding, _ = logged
    request = rows.request._replace(
        service=np.zeros_like(rows.request.service), queue=(rows.node == 0).astype(np.int32)
    )
    windows = cut_windows(rows._replace(request=request), np.arange(150) < 90, encoding, num_steps=64)
    valid, is_first = windows.valid(), request.queue[:90][windows.row[windows.valid()]] == 1
    rare = rarely_tried(windows, encoding.cluster.num_nodes)[:, valid]
    assert 5 < is_first.sum() < 85
    np.testing.assert_array_equal(rare[0], ~is_first)
    np.testing.assert_array_equal(rare[1:], np.tile(is_first, (3, 1)))


@pytest.mark.slow
def test_padding_changes_nothing_and_compiles_nothing(logged: tuple, program: tuple) -> None:
    _, encoding, windows = logged
    run, params = program
    early, late = windows
    wider = late._replace(carried=with_room(late.carried, len(late.carried.node) + 16))
    shape, programs = common_shape([early, wider]), set()
    for part in (early, wider):
        judge = replay_judge(run, encoding, part, shape)
        results = judge.evaluate(jax.random.key(2), [Candidate(kind, kind, params) for kind in run.kinds])
        assert [result.decisions.num_rows for result in results] == [part.length.sum()] * len(run.kinds)
        assert len({result.decisions.node.tobytes() for result in results}) > len(run.kinds) // 2
        programs.add(run.run._cache_size())
    assert len(programs) == 1


def test_padded_windows_hold_the_same_requests(logged: tuple) -> None:
    windows = logged[2][1]
    wide = pad_windows(windows, windows.num_steps + 3, windows.num_windows + 2)
    assert wide.arrival_s.shape == (windows.num_steps + 3, windows.num_windows + 2)
    kept = wide.valid()[:, : windows.num_windows]
    assert kept.sum() == windows.valid().sum()
    np.testing.assert_array_equal(wide.node[:, : windows.num_windows][kept], windows.node[windows.valid()])


def test_units_are_blocks_in_order_of_arrival(logged: tuple) -> None:
    windows = logged[2][0]
    _, unit, kind = window_units(windows)
    order = np.argsort(windows.row[windows.valid()])
    assert "blocks" in kind
    assert np.all(np.diff(unit[windows.valid()][order]) >= 0)
    assert len(np.unique(unit[windows.valid()])) > 6


def test_baselines_are_chosen_by_name_and_those_of_the_truth_act_there_alone() -> None:
    chosen = JudgeConfig(baselines=("gsp_ss", "firmament"))
    assert [one.name for one in chosen.compared()] == ["firmament"]
    assert [one.name for one in chosen.compared_in_truth()] == ["gsp_ss"]
    with pytest.raises(ConfigError, match="no baseline nosuch") as caught:
        JudgeConfig(baselines=("random", "nosuch"))
    assert "firmament" in caught.value.allowed
