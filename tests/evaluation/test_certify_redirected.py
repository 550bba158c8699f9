"""Requests that ran elsewhere than they were offered to are said at once; many of them fail a certificate."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.redirected import redirected_line
from logs_schema import Archive
from logs_schema.importing import import_log
from logs_schema.notices import notices_of
from tests.logs_schema.collecting import written

NODES = "node_id,node_class,site,tier,cpu_cores"
HEADER = "request_id,arrival,site,status,cpu_cores,offered_node,accepted,start,finish,ran_node"
DAY = dt.date(2024, 3, 1)


def log_of(
    folder: Path, offered: str, elsewhere: float, *, num_rows: int = 2_000, says: bool = True
) -> Archive:
    """Requests that are offered to `offered`, of which a share runs on `b` and the rest on `a`."""
    random = np.random.default_rng(0)
    written(folder, "nodes.csv", NODES, "a,large,s,edge,8", "b,small,s,edge,8")
    begin_s = dt.datetime(2024, 3, 1, tzinfo=dt.UTC).timestamp()
    rows = []
    for number, at_s in enumerate(np.sort(random.uniform(0.0, 86_000.0, num_rows)).tolist()):
        ran = ("b" if random.random() < elsewhere else "a") if says else ""
        at = f"{begin_s + at_s:.3f}"
        rows.append(f"{number},{at},s,completed,1,{offered},true,{at},{begin_s + at_s + 9.0:.3f},{ran}")
    written(folder, "requests.csv", HEADER, *rows)
    import_log("native", [folder], folder / "archive")
    return Archive(folder / "archive")


@pytest.mark.parametrize(
    ("offered", "elsewhere", "verdict"),
    [
        ("a", 0.0, Verdict.PASS),
        ("a", 0.03, Verdict.PASS),
        ("a", 0.1, Verdict.FAIL),
        ("large", 0.0, Verdict.PASS),  # a class of nodes, and one of it
        ("large", 0.1, Verdict.FAIL),
        ("", 0.1, Verdict.NOT_APPLICABLE),
    ],
)
def test_many_that_ran_elsewhere_fail(tmp_path, offered, elsewhere, verdict):
    archive = log_of(tmp_path, offered, elsewhere)
    line = redirected_line(archive, [DAY], CertifyConfig())
    assert line.verdict is verdict, line
    assert line.deciding == (verdict is not Verdict.NOT_APPLICABLE)
    if verdict is not Verdict.NOT_APPLICABLE:
        ran = archive.read("requests", columns=["ran_node"])["ran_node"].to_pylist()
        assert line.value.value == pytest.approx(ran.count("b") / len(ran))
        assert line.value.low <= line.value.value <= line.value.high
    said = [notice for notice in notices_of(archive) if "ran on another node" in notice]
    assert bool(said) == (verdict is not Verdict.NOT_APPLICABLE and elsewhere > 0.02)
    assert not said or f"{line.value.value:.0%} of the requests of {DAY}" in said[0]


def test_of_runs_without_a_node_nothing_is_said(tmp_path):
    archive = log_of(tmp_path, "a", 0.0, says=False, num_rows=50)
    assert redirected_line(archive, [DAY], CertifyConfig()).verdict is Verdict.NOT_APPLICABLE
    assert not [notice for notice in notices_of(archive) if "ran on another node" in notice]
