"""A log without a choice of node: the fit says so, the training refuses; without nodes, every problem of nodes does."""

from types import SimpleNamespace

import pytest

from evaluation.commands.cli import main
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import ProblemOptions
from evaluation.problems.kits import choose_kit
from evaluation.problems.placement import steps
from evaluation.problems.placement.choices import NO_CHOICE, no_choice, refuse_no_choice, taken_for_one
from evaluation.problems.placement.kit import fitted
from evaluation.problems.placement.reporting import limits_of
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.product import Manifest, writing
from logs_schema.tables import NODES, REQUESTS
from tests.twin.test_fit_encoding import DAYS, archived, request, table_of
from twin.placement.encoding import fit_encoding


def archive_of(path, candidates, num_nodes=3, **fields):
    """Requests one after the other with these candidates, on nodes n0, n1, ... of two classes."""
    nodes = [
        {"node_id": f"n{i}", "node_class": f"c{i // 2}", "site": "here", "tier": "pool", "cpu_cores": 4.0}
        for i in range(num_nodes)
    ]
    rows = [
        request(i, 0, 100.0 * i, 50.0, ran_node="n0", candidates=names, **fields)
        for i, names in enumerate(candidates)
    ]
    with ArchiveWriter(path) as writer:
        if nodes:
            writer.write("nodes", table_of(NODES, nodes), source="made")
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    return Archive(path)


@pytest.mark.parametrize(
    ("candidates", "num_nodes", "granularity", "words"),
    [
        ([["n0"], ["n1"]], 3, "node", "every request of the training days had one legal node"),
        ([["n0", "n0"], ["n1", "gone"]], 3, "node", "one legal node"),
        ([["n0", "n1"]], 3, "class", "one legal node"),
        ([["n0", "n2"]], 3, "class", ""),
        ([["n0"], ["n1", "n2"]], 3, "node", ""),
        ([["n0"], None], 3, "node", ""),
        ([["gone"]], 3, "node", ""),
        ([None], 1, "node", "there is only one node, n0"),
        ([None], 2, "class", "all 2 nodes are of one"),
    ],
)
def test_whether_any_request_had_a_choice(tmp_path, candidates, num_nodes, granularity, words):
    archive = archive_of(tmp_path / "log", candidates, num_nodes)
    encoding = fit_encoding(archive, DAYS[:1], granularity=granularity)
    said = no_choice(archive, encoding, DAYS[:1])
    assert (words in said) if words else not said


def test_nodes_of_classes_told_apart_by_site_are_those_of_their_archive(tmp_path, monkeypatch):
    nodes = [
        {"node_id": f"n{i}", "node_class": "c", "site": f"s{i}", "tier": "edge", "cpu_cores": 4.0}
        for i in range(2)
    ]
    archive = archived(tmp_path / "log", nodes, [request(1, 0, 0.0, 9.0, ran_node="n0", num_nodes=2)])
    encoding = fit_encoding(archive, DAYS[:1])
    assert encoding.cluster.node_names == ("c@s0", "c@s1")
    monkeypatch.setattr(steps, "load_encoding", lambda twin: encoding)
    monkeypatch.setattr(steps, "refuse_other_days", lambda archive, twin: None)
    steps.refuse_other_nodes(archive, tmp_path)
    with pytest.raises(ConfigError, match="different nodes"):
        steps.refuse_other_nodes(archive_of(tmp_path / "other", [None], 1), tmp_path)


def test_a_twin_without_a_choice_is_not_trained_in_and_ordering_is_named(tmp_path, capsys):
    with writing(tmp_path / "twin", "twin", extra={NO_CHOICE: "one node"}) as folder:
        (folder / "encoding.json").write_text(
            fit_encoding(archive_of(tmp_path / "log", [None]), DAYS[:1]).to_json()
        )
    with pytest.raises(ConfigError, match="no choice of node: one node") as caught:
        refuse_no_choice(tmp_path / "twin")
    assert "--problem ordering" in caught.value.advice
    assert main(["train", str(tmp_path / "twin"), "--out", str(tmp_path / "policy"), "--no-progress"]) == 2
    assert "no choice of node: one node" in capsys.readouterr().err  # and not that it has no certificate
    with writing(tmp_path / "other", "twin") as folder:
        (folder / "encoding.json").write_text((tmp_path / "twin" / "encoding.json").read_text())
    refuse_no_choice(tmp_path / "other")


def test_the_fit_tells_a_person_that_nothing_can_be_trained(monkeypatch):
    monkeypatch.setattr("evaluation.problems.placement.kit.spread_in_words", lambda _spread: "")
    facts = {
        "train_days": ["2024-01-01"],
        "num_train_offers": 1,
        "held_out_log_likelihood": 0.0,
        "spread": {},
        "population": {"kind": "none"},
    }
    warnings = [line for line in fitted(facts | {NO_CHOICE: "one node"}) if line not in fitted(facts)]
    assert warnings == [
        "warning: one node, so nothing can be trained in this twin; "
        "to learn the order of a queue: schedtwin fit --problem ordering"
    ]


def test_the_page_says_why_nothing_was_trained_also_of_several_nodes():
    comparison = SimpleNamespace(judges=(SimpleNamespace(name="truth"),))
    twin = Manifest("twin", extra={NO_CHOICE: "one legal node each"})
    (said,) = limits_of(comparison, {"twin": twin})
    assert "no choice of node: one legal node each." in said
    assert not limits_of(comparison, {"twin": Manifest("twin")})


@pytest.mark.parametrize("problem", ["assignment", "orchestration"])
def test_a_log_without_nodes_is_refused_with_what_it_lacks(tmp_path, problem):
    archive = archive_of(tmp_path / "log", [None], num_nodes=0, input_mib=1.0)
    with pytest.raises(ConfigError) as caught:
        choose_kit(RunConfig(), archive.path, ProblemOptions(problem))
    assert "nodes.csv" in caught.value.advice
    assert "placement" not in caught.value.advice
    assert problem != "assignment" or "no nodes in the table nodes, and two are needed" in caught.value.what


def test_without_nodes_nothing_is_placed(tmp_path):
    archive = archive_of(tmp_path / "log", [None], num_nodes=0)
    with pytest.raises(ConfigError, match="the archive lists no nodes") as caught:
        no_choice(archive, fit_encoding(archive, DAYS[:1]), DAYS[:1])
    # Such as SWF without a header
    assert caught.value.advice.endswith("--problem ordering --processors SIZE")


@pytest.mark.parametrize(("cores", "told"), [(2.0, "of this one the order"), (None, "of one with cpu_cores")])
def test_of_a_log_that_never_names_a_node_none_are_asked_for(tmp_path, cores, told):
    with ArchiveWriter(tmp_path / "log") as writer:
        rows = [request(0, 0, 1.0, 5.0, cpu_cores=cores)]
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    archive = Archive(tmp_path / "log")
    with pytest.raises(ConfigError, match="the log never says on which node a request ran") as caught:
        no_choice(archive, fit_encoding(archive, DAYS[:1]), DAYS[:1])
    assert told in caught.value.advice
    assert (
        "--problem ordering --processors SIZE, in a job's configuration a table [order]"
        in caught.value.advice
    )


@pytest.mark.parametrize(
    ("num_services", "words"), [(40, ""), (42, "2 of 42 services, with 2% of the requests")]
)
def test_labels_that_are_not_told_apart_are_counted(tmp_path, num_services, words):
    nodes = [{"node_id": f"n{i}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for i in range(2)]
    common = [f"s{i % 40}" for i in range(80)]
    services = [*common, *(f"rare {i}" for i in range(num_services - 40))]
    rows = [
        request(i, 0, 100.0 * i, 50.0, ran_node="n0", candidates=None, service=service)
        for i, service in enumerate(services)
    ]
    with ArchiveWriter(tmp_path / "log") as writer:
        writer.write("nodes", table_of(NODES, nodes), source="made")
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    archive = Archive(tmp_path / "log")
    said = taken_for_one(archive, fit_encoding(archive, DAYS[:1]), DAYS[:1])
    assert (words in said) if words else not said
