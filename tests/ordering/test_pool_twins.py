"""The twin of one of an archive's pools remembers which; whatever follows is what it would be of that pool alone."""

import json

import numpy as np
import pyarrow as pa
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.products import load_comparison
from evaluation.problems.ordering.certificate.certifying import certify_queue
from logs_schema import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress
from tests.command import run_silently as run
from tests.ordering.making import INDEX_ONLY, QUICK
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import load_queue_twin

NO_RULES = CertifyConfig(max_weeks=6, num_copies=1, max_rows=400, num_replicates=200, rankings=False)
SETTINGS = QUICK.replace("[order]", '[order]\npool = "big"', 1) + INDEX_ONLY


@pytest.fixture(scope="module")
def with_neighbour(queue_made, tmp_path_factory):
    """The queue's archive and twin; and an archive in which another pool has half as many jobs, and a twin of it."""
    alone = queue_made[0]
    own = tmp_path_factory.mktemp("neighbours")
    rows = Archive(alone / "archive").read("requests")
    nodes = {"node_id": ["b", "s"], "node_class": ["big", "small"], "cpu_cores": [16.0, 40.0]}
    others = rows.take(np.arange(0, rows.num_rows, 2))
    ids = pa.array([f"other {number}" for number in range(others.num_rows)])
    others = _with(others, request_id=ids, agent=pa.nulls(len(ids), pa.string()))
    with ArchiveWriter(own / "archive") as archive:
        table = pa.table(nodes | {"site": ["here"] * 2, "tier": ["pool"] * 2})
        archive.write("nodes", table, source="test")
        for part, node in ((rows, "b"), (others, "s")):
            archive.write("requests", _with(part, ran_node=pa.array([node] * part.num_rows)), source="test")
    (own / "order.toml").write_text(SETTINGS)
    assert run("fit", own / "archive", "--config", own / "order.toml", "--out", own / "twin") == 0
    return alone, own


def _with(rows, **columns):
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


@pytest.mark.slow
def test_the_twin_is_that_of_the_pool_alone(with_neighbour):
    alone, own = with_neighbour
    expected, found = (load_queue_twin(folder / "twin") for folder in (alone, own))
    assert (expected.pool.name, found.pool.name) == (None, "big")
    assert expected.pool.processors == found.pool.processors
    for ours, theirs in ((found.population, expected.population), (found.past, expected.past)):
        for name, values in theirs._asdict().items():
            if name != "counts":
                np.testing.assert_array_equal(getattr(ours, name), values, err_msg=name)
    jobs = read_jobs(Archive(own / "archive"), pool="big")
    assert len(jobs.arrival_s) == len(read_jobs(Archive(alone / "archive")).arrival_s)
    assert len(read_jobs(Archive(own / "archive")).arrival_s) > 1.4 * len(jobs.arrival_s)
    assert read_manifest(own / "twin", "twin").extra["pool"] == "big"
    assert "pool" not in read_manifest(alone / "twin", "twin").extra


@pytest.mark.slow
def test_its_certificate_is_that_of_the_pool_alone(with_neighbour):
    expected, found = (
        certify_queue(
            load_queue_twin(folder / "twin"),
            Archive(folder / "archive"),
            None,
            NO_RULES,
            SilentProgress(),
            twin_hash="",
        )
        for folder in with_neighbour
    )
    assert found.lines == expected.lines
    assert found.notes == expected.notes


@pytest.mark.slow
def test_anchors_of_the_pool_are_judged_as_if_it_were_alone(with_neighbour, tmp_path):
    cells = []
    for folder, words in zip(with_neighbour, ((), ("--pool", "big")), strict=True):
        words = (*words, "--rules-only", "--days", 7, "--shifts", "0d,7d", "--anchors", 2)
        assert run("order", folder / "archive", *words, "--out", tmp_path / folder.name) == 0
        cells.append(load_comparison(tmp_path / folder.name).cells)
    assert cells[0] == cells[1]


@pytest.mark.slow
def test_orders_are_trained_judged_and_handed_over_for_the_pool(with_neighbour, tmp_path, capsys):
    alone, own = with_neighbour
    (tmp_path / "alone.toml").write_text(SETTINGS.replace('pool = "big"', ""))
    cells = []
    for folder, config in ((alone, tmp_path / "alone.toml"), (own, own / "order.toml")):
        policy, out = tmp_path / f"policy-{folder.name}", tmp_path / f"comparison-{folder.name}"
        assert run("train", folder / "twin", "--config", config, "--force", "--out", policy) == 0
        words = (folder / "archive", folder / "twin", policy, "--config", config, "--out", out)
        assert run("compare", *words) == 0
        cells.append(load_comparison(out).cells)
        assert run("export", policy, "--out", tmp_path / f"bundle-{folder.name}") == 0
    assert cells[0] == cells[1]
    assert load_comparison(out).archive["pool"] == "big"
    contract = json.loads((tmp_path / f"bundle-{own.name}" / "contract.json").read_text())
    assert (contract["trained_on"]["pool"], contract["setting"]["processors"]) == ("big", 16.0)
    capsys.readouterr()
    assert run("inspect", tmp_path / f"bundle-{own.name}") == 0
    assert "big" in capsys.readouterr().out


@pytest.mark.slow
def test_generated_days_are_of_the_pool(with_neighbour, tmp_path):
    made = []
    for folder in with_neighbour:
        assert run("generate", folder / "twin", "--days", 3, "--out", tmp_path / folder.name) == 0
        made.append(Archive(tmp_path / folder.name))
    assert made[0].read("requests").equals(made[1].read("requests"))
    assert made[1].nodes()["node_class"].to_pylist() == ["big"]
    jobs = read_jobs(made[1], pool="big")  # the only class of nodes: all jobs are its
    np.testing.assert_array_equal(jobs.request_id, read_jobs(made[0]).request_id)
