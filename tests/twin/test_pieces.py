"""Pieces of a log: all of a little, evenly spread stretches of much, each with what was in flight when it began."""

import datetime as dt

import jax
import numpy as np
import pyarrow as pa
import pytest

from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.row_groups import RowGroup
from offline_rl.recipes.config import MIN_EPISODES, TrainingConfig, episodes_of
from twin.placement import history, log_windows
from twin.placement.encode import cut_windows, read_pieces, read_rows
from twin.placement.encoding import fit_encoding
from twin.placement.history import choices_in_log, labelled_offers, replay_log
from twin.placement.log_windows import encode_days, looked_at, training_windows
from twin.placement.model import PlacementTwin
from twin.placement.pieces import pieces
from twin.placement.windows import joined, lengthened, select

COLUMNS = ("request_id", "arrival", "finish")
MOST = 2_000


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("pieces") / "archive"
    simulate("small", 3, "mix", 0, path)
    return Archive(path)


def in_flight_at(archive: Archive, moment: dt.datetime) -> set[str]:
    rows = archive.read("requests", columns=COLUMNS).to_pylist()
    return {
        row["request_id"]
        for row in rows
        if row["arrival"] < moment and row["finish"] and row["finish"] >= moment
    }


def test_a_little_is_looked_at_whole(archive: Archive) -> None:
    days = archive.days("requests")[1:]
    ((table, wanted),) = pieces(archive, days, most=100_000, columns=COLUMNS)
    whole = archive.read("requests", days=days, columns=["request_id"])
    assert table["request_id"].filter(pa.array(wanted)).to_pylist() == whole["request_id"].to_pylist()
    midnight = dt.datetime.combine(days[0], dt.time(), dt.UTC)
    assert set(table["request_id"].filter(pa.array(~wanted)).to_pylist()) == in_flight_at(archive, midnight)


@pytest.mark.slow
def test_the_gap_between_requests_is_that_of_all_though_some_are_looked_at(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_encoding(archive, archive.days("requests")).problem.memory_s
    monkeypatch.setattr("twin.placement.encoding.MAX_ROWS", MOST)
    assert fit_encoding(archive, archive.days("requests")).problem.memory_s == pytest.approx(whole, rel=0.3)


def test_of_much_stretches_of_every_day_are_looked_at_with_what_was_in_flight(archive: Archive) -> None:
    days = archive.days("requests")
    found = list(pieces(archive, days, most=MOST, columns=COLUMNS))
    assert 0.98 * MOST < sum(wanted.sum() for _, wanted in found) <= MOST
    first = [table["arrival"].filter(pa.array(wanted))[0].as_py() for table, wanted in found]
    assert [moment.date() for moment in first] == days
    assert len({moment.hour for moment in first}) == len(days)  # other times of day, each time
    carried = 0
    for (table, wanted), moment in zip(found, first, strict=True):
        held = {name for name, mine in zip(table["request_id"].to_pylist(), wanted, strict=True) if not mine}
        assert held == in_flight_at(archive, moment)
        carried += len(held)
    assert carried > 0


@pytest.mark.slow
def test_windows_of_a_stretch_begin_as_those_of_the_whole_log(archive: Archive) -> None:
    days, encoding = archive.days("requests"), fit_encoding(archive, archive.days("requests"))
    (windows,) = training_windows(archive, encoding, days, num_steps=16, most=MOST)
    rows, wanted = read_rows(archive, encoding, days, known_until_s=np.inf)
    for window in range(0, windows.num_windows, 20):
        at = int(
            np.searchsorted(rows.arrival_s, windows.origin_s[window] + windows.arrival_s[0, window] - 1e-3)
        )
        alone = cut_windows(rows, wanted & (np.arange(rows.num_rows) >= at), encoding, num_steps=16)
        told = [
            sorted(
                zip(
                    of.carried.node[of.carried.node[:, w] >= 0, w],
                    np.round(of.carried.request.arrival_s[of.carried.node[:, w] >= 0, w], 2),
                    strict=True,
                )
            )
            for of, w in ((windows, window), (alone, 0))
        ]
        assert told[0] == told[1]


@pytest.mark.slow
def test_longer_windows_are_those_that_a_longer_cut_gives(archive: Archive) -> None:
    days, encoding = archive.days("requests"), fit_encoding(archive, archive.days("requests"))
    (short,), (wanted,) = (
        training_windows(archive, encoding, days, num_steps=steps, strides=(stride,))
        for steps, stride in ((16, 8), (64, None))
    )
    long = lengthened(short, 64)
    assert long.num_windows >= wanted.num_windows - 1  # of a last one, requests may be in no short window
    full = np.arange(wanted.num_windows - 1)
    assert (long.length[full] == 64).all()
    for got, right in zip(jax.tree.leaves(long), jax.tree.leaves(wanted), strict=True):
        if np.ndim(right):
            np.testing.assert_allclose(got[..., full], right[..., full], rtol=1e-6, atol=0.02)


@pytest.mark.slow
def test_longer_windows_end_where_a_stretch_of_the_log_does(archive: Archive) -> None:
    days, encoding = archive.days("requests"), fit_encoding(archive, archive.days("requests"))
    (short,) = training_windows(archive, encoding, days, num_steps=16, strides=(8,), most=MOST)
    long = lengthened(short, 256)
    row = long.row[long.valid()]
    assert len(np.unique(row)) == len(row) > 0.9 * len(np.unique(short.row[short.valid()]))
    last_s = long.origin_s + long.arrival_s[long.length - 1, np.arange(long.num_windows)]
    assert (long.origin_s // 86_400 == last_s // 86_400).all()  # every stretch is of one day
    assert (np.diff(long.arrival_s, axis=0)[long.valid()[1:]] >= 0.0).all()
    alone = lengthened(select(short, np.array([3])), 256)
    assert (alone.row[:16] == short.row[:, [3]]).all()
    assert alone.length.tolist() == [16]


@pytest.mark.slow
def test_episodes_are_as_long_as_wanted_or_as_the_log_allows(archive: Archive) -> None:
    days, encoding = archive.days("requests")[:1], fit_encoding(archive, archive.days("requests"))
    (short,) = training_windows(archive, encoding, days, num_steps=16, strides=(8,), most=MOST)
    twin = PlacementTwin(encoding, None, None, short, None)  # type: ignore[arg-type]
    num_requests = len(np.unique(short.row[short.valid()]))
    for wanted, given in ((64, 64), (10**6, num_requests // MIN_EPISODES), (1, 16)):
        episodes = episodes_of(twin, TrainingConfig(episode_requests=wanted))
        assert episodes.num_steps == given
        assert episodes.num_windows >= MIN_EPISODES


def test_days_side_by_side_keep_their_rows_apart(archive: Archive) -> None:
    days, encoding = archive.days("requests"), fit_encoding(archive, archive.days("requests")[:1])
    parts = [encode_days(archive, encoding, [day], num_steps=64) for day in days[:2]]
    whole = joined(parts)
    assert len(np.unique(whole.row[whole.valid()])) == whole.valid().sum()
    assert whole.num_overflow == sum(part.num_overflow for part in parts)


@pytest.mark.slow
def test_offers_are_the_same_part_by_part(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = fit_encoding(archive, archive.days("requests")[:1])
    ((rows, wanted),) = read_pieces(
        archive, encoding, archive.days("requests")[:1], known_until_s=np.inf, most=None
    )
    windows = cut_windows(rows, wanted, encoding, num_steps=64)
    at_once = labelled_offers(windows, encoding)
    monkeypatch.setattr(history, "AT_ONCE", 16)
    by_parts = labelled_offers(windows, encoding)
    np.testing.assert_array_equal(at_once.inputs, by_parts.inputs)
    np.testing.assert_array_equal(at_once.window, by_parts.window)
    assert all(np.array_equal(a, b) for a, b in zip(at_once.observed, by_parts.observed, strict=True))


def test_a_piece_of_much_holds_no_more_in_memory_than_its_own_rows(archive: Archive) -> None:
    for table, _ in pieces(archive, archive.days("requests"), most=200, columns=COLUMNS):
        texts = table.select(["request_id"])
        assert texts.get_total_buffer_size() < 100 * table.num_rows


@pytest.mark.slow
def test_days_of_more_requests_than_are_looked_at_give_windows_from_all_over_them(archive: Archive) -> None:
    day = archive.days("requests")[-1]
    encoding = fit_encoding(archive, archive.days("requests")[:-1])
    whole = encode_days(archive, encoding, [day], num_steps=16)
    total = archive.num_rows("requests", day)
    some = encode_days(archive, encoding, [day], num_steps=16, most=total // 4)
    assert int(some.valid().sum()) == pytest.approx(total / 4, rel=0.2)
    every, chosen = ((one.arrival_s + one.origin_s)[one.valid()].round(3) for one in (whole, some))
    assert np.isin(chosen, every).all()
    assert np.histogram(chosen % 86_400.0, 8, (0.0, 86_400.0))[0].min() > 0


def test_each_row_group_is_read_once_for_what_its_requests_hold_later(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    days, reads = archive.days("requests"), list[str]()
    whole = RowGroup.read
    monkeypatch.setattr(
        RowGroup, "read", lambda group, columns: reads.append(group.file) or whole(group, columns)
    )
    far = {"finish": dt.datetime.max.replace(tzinfo=dt.UTC)}
    # As if some in each lasted very long
    monkeypatch.setattr("logs_schema.row_groups._latest", lambda _: far)
    found = list(pieces(archive, days, most=MOST, columns=COLUMNS, each=50))
    assert len(found) > 5 * len(days)
    assert max(reads.count(name) for name in reads) == 2  # for its own pieces, and for all later ones


@pytest.mark.slow
def test_of_many_nodes_fewer_requests_are_judged(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    day = archive.days("requests")[-1]
    encoding = fit_encoding(archive, archive.days("requests")[:-1])
    whole = encode_days(archive, encoding, [day], num_steps=16)
    assert int(whole.valid().sum()) == archive.num_rows("requests", day) < looked_at(encoding)
    monkeypatch.setattr(log_windows, "LEAST_REQUESTS", 100)
    monkeypatch.setattr(log_windows, "MAX_JUDGED_VIEWS", 400 * encoding.cluster.num_nodes)
    assert looked_at(encoding) == 400
    some = encode_days(archive, encoding, [day], num_steps=16)
    assert int(some.valid().sum()) == pytest.approx(400, rel=0.2)
    every = encode_days(archive, encoding, [day], num_steps=16, most=None)
    assert every.valid().sum() == whole.valid().sum()


@pytest.mark.slow
def test_what_a_clone_learns_from_is_the_log_without_what_a_critic_sees(archive: Archive) -> None:
    encoding = fit_encoding(archive, archive.days("requests")[:1])
    windows = encode_days(archive, encoding, archive.days("requests")[:1], num_steps=64)
    few = select(windows, np.arange(18))  # followed in two parts
    whole, seen = replay_log(few, encoding), choices_in_log(few, encoding)
    assert seen.global_observation is None
    expected = jax.tree.leaves(whole._replace(global_observation=None))
    assert all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, jax.tree.leaves(seen), strict=True)
    )


@pytest.mark.parametrize(
    ("most_nodes", "most_views", "width"),
    [
        (128, 1, 64),
        pytest.param(1, 1 << 20, 16, marks=pytest.mark.slow),
        pytest.param(1, 3, 3, marks=pytest.mark.slow),
        (1, 0, 1),
    ],
)
def test_of_many_nodes_and_long_windows_few_are_followed_at_once(
    most_nodes: int, most_views: int, width: int, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding = fit_encoding(archive, archive.days("requests")[:1])
    windows = encode_days(archive, encoding, archive.days("requests")[:1], num_steps=64)
    views = windows.num_steps * encoding.cluster.num_nodes
    monkeypatch.setattr(history, "MOST_NODES", most_nodes)
    monkeypatch.setattr(history, "MOST_VIEWS", most_views * views if most_views < 1 << 20 else most_views)
    followed: list[int] = []
    monkeypatch.setattr(
        history,
        "_replay_program",
        lambda _: lambda padded, _: followed.append(padded.num_windows) or np.zeros(width),
    )
    few = select(windows, np.arange(17))
    parts = [here for here, _ in history.followed_parts(few, encoding)]
    assert set(followed) == {width}
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(17))
