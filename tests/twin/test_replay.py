"""The donor rule by hand, and nothing of a fate leaks before it is due."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_requests, made_rows
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encode import EncodedRows, cut_windows
from twin.placement.encoding import Encoding
from twin.placement.history import replay_environment
from twin.placement.replay import nearest_donor, replay_table, times_lent, with_logged_luck
from twin.placement.responses import Answers, drawn_response
from twin.placement.types import COMPLETED, DROPPED, REJECTED, Fate
from twin.placement.windows import Windows, replayed_arrivals
from twin.rollout import follow


def hand_made(node: list[int], service: list[int], wait: list, run: list, status: list[int]) -> tuple:
    """Requests ten seconds apart; a wait of None never started, its run is the time to being dropped."""
    cluster, count = made_cluster(), len(node)
    encoding = made_encoding(cluster)
    arrival_s = 100.0 + 10.0 * np.arange(count)
    start_s = np.array([np.inf if w is None else a + w for a, w in zip(arrival_s, wait, strict=True)])
    begun = np.array([a + (w or 0.0) for a, w in zip(arrival_s, wait, strict=True)])
    finish_s = begun + np.array([np.inf if r is None else r for r in run])
    request = made_requests(np.random.default_rng(0), cluster, (count,))._replace(
        service=np.array(service, np.int32), rule=np.zeros(count, np.int32)
    )
    names = np.array([str(i) for i in range(count)])
    rows = EncodedRows(
        arrival_s,
        start_s,
        finish_s,
        np.array(status, np.int32),
        np.array(node, np.int32),
        request,
        names,
        np.zeros(count, bool),
    )
    return cut_windows(rows, np.ones(count, bool), encoding, num_steps=count), encoding


@pytest.mark.parametrize(("asked", "wanted"), [(0.0, 0), (4.9, 0), (5.0, 0), (5.1, 1), (99.0, 2)])
def test_nearest_donor_and_the_earlier_of_equals(asked: float, wanted: int) -> None:
    assert nearest_donor(np.array([asked]), np.array([0.0, 10.0, 20.0])).tolist() == [wanted]


def test_how_often_an_outcome_is_lent_by_hand() -> None:
    """Services 1 and 2; node 1 ran one request of service 1, the last, which lends its outcome to all others."""
    windows, _ = hand_made([0, 0, 0, 2, 1], [1, 1, 1, 2, 1], [0] * 5, [9] * 5, [COMPLETED] * 5)
    lent = times_lent(windows)

    def of(*chosen: int) -> list[int]:
        return lent(np.array(chosen)[:, None])[:, 0].tolist()

    assert of(0, 0, 0, 2, 1) == [0] * 5  # as logged
    assert of(1, 1, 0, 2, 1) == [2, 2, 0, 0, 0]
    assert of(1, 1, 1, 1, 1) == [4, 4, 4, 4, 0]  # of service 2 it is the nearest that node 1 ran
    # Node 3 ran nothing; request 2 is the nearest to both of the last
    assert of(3, 3, 3, 0, 0) == [0, 0, 0, 2, 2]


def test_donors_by_hand() -> None:
    """Node 0 ran services 1 and 2, node 1 refused once and dropped once, node 2 ran nothing that ended."""
    windows, _ = hand_made(
        node=[0, 0, 1, 1, 2],
        service=[1, 2, 1, 2, 1],
        wait=[3, 0, None, None, None],
        run=[5, 7, None, 4, None],
        status=[COMPLETED, COMPLETED, REJECTED, DROPPED, -1],
    )
    table = replay_table(windows, 4, own_run=False)
    clock = windows.arrival_s[:, 0]
    start, finish = table.fate.start_s[..., 0] - clock, table.fate.finish_s[..., 0] - clock
    # request 2 (service 1) on node 0: request 0 is nearer of the same service than request 1 of another
    assert (start[0, 2], finish[0, 2]) == (3.0, 8.0)
    # request 3 (service 2) on node 0: from request 1
    assert (start[0, 3], finish[0, 3]) == (0.0, 7.0)
    # request 0 (service 1) on node 1: refused like request 2; request 1 (service 2): dropped after 4 s like request 3
    assert not table.fate.accepted[1, 0, 0]
    assert table.fate.status[1, 0, 0] == REJECTED
    assert table.fate.accepted[1, 1, 0]
    assert (start[1, 1], finish[1, 1], table.fate.status[1, 1, 0]) == (np.inf, 4.0, DROPPED)
    # nobody is known to have ended on nodes 2 and 3
    assert not table.known[2:, :, 0].any()
    assert np.isinf(table.fate.finish_s[2:, :, 0]).all()
    # the log's own decisions keep the log's own answers
    assert (start[0, 0], finish[0, 0]) == (3.0, 8.0)
    assert table.logged[..., 0].sum() == 5


def test_own_run_time_is_kept_where_the_work_belongs_to_the_request() -> None:
    windows, _ = hand_made([0, 1], [1, 1], [3, 2], [50, 7], [COMPLETED, COMPLETED])
    kept, lent = (replay_table(windows, 4, own_run=own).fate for own in (True, False))
    clock = windows.arrival_s[1, 0]
    assert (kept.start_s[0, 1, 0] - clock, kept.finish_s[0, 1, 0] - clock) == (3.0, 10.0)
    assert (lent.start_s[0, 1, 0] - clock, lent.finish_s[0, 1, 0] - clock) == (3.0, 53.0)


@pytest.fixture(scope="module")
def system() -> tuple:
    cluster = made_cluster()
    encoding = made_encoding(cluster)
    rows = made_rows(np.random.default_rng(7), cluster, 120)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=40)
    made = replay_environment(windows, encoding)
    return windows, encoding, made, jax.jit(made.step)


def test_nothing_leaks_before_it_is_due(system: tuple[Windows, Encoding, object, object]) -> None:
    """Fates that lie ahead are changed in the private response: nothing seen differs until one falls due."""
    windows, _, made, step = system
    state = jax.jit(lambda key: made.reset(key, (windows.num_windows,)))(jax.random.key(0))
    nodes = np.maximum(windows.node, 0)[:, None]
    for number in range(20):
        state, _ = step(jax.random.key(number), state, jnp.asarray(nodes[number]))
    hidden, clock = jax.tree.map(np.asarray, (state.response.hidden, state.problem.clock_s))
    later_s = np.float32(25.0)

    def delay(times: np.ndarray) -> np.ndarray:
        return np.where(times > clock, times + later_s, times)

    assert np.sum(np.isfinite(hidden.finish_s) & (hidden.finish_s > clock)) > 5
    changed = hidden._replace(
        start_s=delay(hidden.start_s),
        finish_s=delay(hidden.finish_s),
        status=np.where(hidden.finish_s > clock, np.int32(DROPPED), hidden.status),
    )
    ahead = np.minimum(
        *(np.where(np.asarray(t) > clock, t, np.inf) for t in (hidden.start_s, hidden.finish_s))
    )
    due_s = ahead.min(axis=(0, 1))  # per window: the first change that could be seen
    twin = state._replace(response=state.response._replace(hidden=changed))
    problem, num_compared, num_differing = made.problem, 0, 0
    seen = jax.jit(
        lambda state: (problem.observe(state), problem.observe_global(state), problem.legal(state))
    )
    for number in range(20, 39):
        clock = np.asarray(state.problem.clock_s)
        before, after = (jax.tree.leaves(seen(each.problem)) for each in (state, twin))
        quiet = clock < due_s
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(np.asarray(one)[..., quiet], np.asarray(other)[..., quiet])
        for one, other in zip(*(jax.tree.leaves(s.problem) for s in (state, twin)), strict=True):
            np.testing.assert_array_equal(np.asarray(one)[..., quiet], np.asarray(other)[..., quiet])
        num_compared += int(quiet.sum())
        num_differing += sum(
            bool(np.any(np.asarray(one)[..., ~quiet] != np.asarray(other)[..., ~quiet]))
            for one, other in zip(before, after, strict=True)
        )
        state, _ = step(jax.random.key(number), state, jnp.asarray(nodes[number]))
        twin, _ = step(jax.random.key(number), twin, jnp.asarray(nodes[number]))
    assert num_compared >= 3
    assert num_differing > 0  # the change does show once it is due


def test_second_call_does_not_retrace(system: tuple) -> None:
    windows, _, made, step = system
    state = jax.jit(lambda key: made.reset(key, (windows.num_windows,)))(jax.random.key(0))
    sizes = []
    for number in range(3):
        state, _ = step(jax.random.key(0), state, np.full((1, windows.num_windows), number, np.int32))
        sizes.append(step._cache_size())
    assert sizes == sizes[:1] * 3


def test_done_streams_stand_still(system: tuple) -> None:
    windows, encoding, *_ = system
    shorter = windows._replace(length=np.array([2, *windows.length[1:]], np.int32))
    made = replay_environment(shorter, encoding)
    step = jax.jit(made.step)
    state = jax.jit(lambda key: made.reset(key, (windows.num_windows,)))(jax.random.key(0))
    still = None
    for number in range(6):
        state, transition = step(jax.random.key(1), state, jnp.zeros((1, windows.num_windows), jnp.int32))
        frozen = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], state.problem)
        if number >= 2:
            for one, other in zip(*map(jax.tree.leaves, (still, frozen)), strict=True):
                np.testing.assert_array_equal(one, other)
            assert float(transition.elapsed_s[0]) == 0.0
            assert int(transition.left.decision[0, 0]) == -1
        still = frozen
        assert bool(state.done[0]) == (number >= 1)


@pytest.mark.slow
def test_logged_decisions_have_the_logged_luck_and_the_system_s_waits(system: tuple) -> None:
    """A system that accepts everything, lets it wait 2 s and run 7 s; every second stream decides otherwise."""
    windows, encoding, _, _ = system

    def answer(_key, memory, state, node, _note):
        start_s = jnp.broadcast_to(state.clock_s[None] + 2.0, node.shape)
        status = jnp.full(node.shape, COMPLETED, jnp.int32)
        return memory, Fate(jnp.ones(node.shape, bool), start_s, start_s + 7.0, status)

    plain = Answers(lambda _key, _streams: None, answer)
    other = np.arange(windows.num_windows) % 2 == 1
    nodes = np.where(other[None], encoding.cluster.num_nodes - 1, np.maximum(windows.node, 0))[:, None]

    @jax.jit
    def episodes(follows):
        response = drawn_response(
            encoding.cluster,
            encoding.problem.depth,
            replayed_arrivals(windows),
            with_logged_luck(plain, windows, follows),
        )
        made = environment(placement(encoding.cluster, encoding.problem), response)
        return follow(jax.random.key(0), made, jnp.asarray(nodes), (windows.num_windows,))

    told, free = episodes(True), episodes(False)
    action, start_s, finish_s, status = (
        np.asarray(leaf)[:, 0]
        for leaf in (told.action, told.outcome.start_s, told.outcome.finish_s, told.outcome.status)
    )
    fate, ran = windows.fate, np.isfinite(windows.fate.finish_s) & np.isfinite(windows.fate.start_s)
    settled = np.asarray(told.settled)[:, 0] & windows.valid()
    lucky = settled & ran & (action == windows.node)
    assert lucky.sum() > 20
    np.testing.assert_allclose(start_s[lucky] - windows.arrival_s[lucky], 2.0, atol=1e-3)
    np.testing.assert_allclose(
        finish_s[lucky] - start_s[lucky], fate.finish_s[lucky] - fate.start_s[lucky], atol=1e-3
    )
    refused = settled & (fate.status == REJECTED) & (action == windows.node)
    assert refused.any()
    assert (status[refused] == REJECTED).all()
    strange = settled & (action != windows.node)
    assert strange.any()
    np.testing.assert_allclose(finish_s[strange] - start_s[strange], 7.0, atol=1e-3)
    unlucky = np.asarray(free.settled)[:, 0] & windows.valid()
    start_s, finish_s = (np.asarray(leaf)[:, 0] for leaf in (free.outcome.start_s, free.outcome.finish_s))
    np.testing.assert_allclose(finish_s[unlucky] - start_s[unlucky], 7.0, atol=1e-3)
