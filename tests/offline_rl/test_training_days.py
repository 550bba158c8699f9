"""What a contract tells of the training days: ranges that one strange request does not widen, and what to expect."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.simulator import logs
from evaluation.simulator.world import Drift
from logs_schema import Archive
from offline_rl.recipes.training_days import (
    feature_ranges,
    load_training_days,
    save_training_days,
    training_days,
)
from offline_rl.runner import Request, load
from tests.offline_rl.bundles import FREE, made_policy, made_system
from twin.placement.encoding import fit_encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.history import replay_log
from twin.placement.log_windows import encode_days


@pytest.mark.slow
def test_ranges_keep_flags_and_do_not_follow_one_strange_request(tmp_path: Path) -> None:
    encoding, windows = made_system(num_steps=128, num_windows=16)
    history = replay_log(windows, encoding)
    low, high = feature_ranges(history, encoding)
    num_nodes = encoding.cluster.num_nodes
    names = [one.name for one in request_features(encoding.cluster)]
    place = len(NODE_FEATURES) * num_nodes + names.index("input")
    request = np.array(history.observation.request)
    usual = request[:, names.index("input")]
    assert high[place] >= usual.max()
    assert low[place] == 0.0 <= usual.min()
    request[5, names.index("input"), 0, 3] = 50.0
    strange = history._replace(observation=history.observation._replace(request=request))
    _, again = feature_ranges(strange, encoding)
    assert again[place] < 2.0 * high[place]
    is_flag = [one.unit == "flag" for one in request_features(encoding.cluster)]
    of_flags = low[-len(names) :][is_flag], high[-len(names) :][is_flag]
    assert set(np.concatenate(of_flags).tolist()) <= {0.0, 1.0}
    told = training_days(windows, encoding)
    assert told.alarm is not None
    assert told.alarm.run_limit is not None
    save_training_days(told, tmp_path)
    found = load_training_days(tmp_path)
    assert found is not None
    assert found.alarm == told.alarm
    np.testing.assert_array_equal(found.high, told.high)
    for name, alarm, words in (
        ("with", told.alarm, "twice or half as long on a node"),
        ("without", None, "none:"),
    ):
        made_policy(tmp_path / name, encoding, FREE, alarm=alarm)
        assert words in " ".join(bundle_text(bundle_facts(tmp_path / name)).split())
    assert load_training_days(tmp_path / "older") is None


def episodes(policy: Any, names: tuple[str, ...], rows: list[dict[str, Any]], slow: str = "") -> int:
    """The decision of a logged day at which an alarm is raised, -1 without one; runs on `slow` take twice as long."""
    ledger, events = policy.ledger([{"name": name} for name in names]), []
    for number, row in enumerate(rows):
        events.append((row["arrival"].timestamp(), 0, number))
        if row["ran_node"] and row["finish"]:
            start_s, finish_s = row["start"].timestamp(), row["finish"].timestamp()
            finish_s += (finish_s - start_s) * (row["ran_node"] == slow)
            events += [(start_s, 1, number), (finish_s, 2, number)]
    num_decided, columns = 0, set(Request.__dataclass_fields__)
    for at_s, kind, number in sorted(events):
        row = rows[number]
        if kind == 0:
            request = Request(**{name: row[name] for name in columns & row.keys() if row[name] is not None})
            num_decided += 1
            ledger.decide(request, at_s)
            if row["ran_node"] and row["finish"]:
                ledger.place(number, row["ran_node"], request, at_s)
        else:
            ledger.start(number, at_s) if kind == 1 else ledger.finish(number, at_s)
        if ledger.watch.alarms():
            return num_decided
    return -1


@pytest.mark.slow
def test_simulated_days_raise_no_alarm_until_a_node_halves_its_speed(tmp_path: Path) -> None:
    made = logs.preset
    with mock.patch.object(logs, "preset", lambda name: replace(made(name), drift=Drift())):
        logs.simulate("small", 6, "mix", 0, tmp_path / "log")
    archive = Archive(tmp_path / "log")
    days = archive.days("requests")
    encoding = fit_encoding(archive, days[:3])
    told = training_days(encode_days(archive, encoding, days[:3], num_steps=128), encoding)
    made_policy(tmp_path / "bundle", encoding, FREE, ranges=(told.low, told.high), alarm=told.alarm)
    policy, names = load(tmp_path / "bundle"), encoding.cluster.node_names
    rows = [archive.read("requests", days=[day]).to_pylist() for day in days[3:]]
    assert [episodes(policy, names, of_day) for of_day in rows] == [-1, -1, -1]
    for name in names:
        assert 0 < episodes(policy, names, rows[0], slow=name) <= 200
