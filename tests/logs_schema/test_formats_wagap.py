import pytest

from logs_schema.errors import FormatError
from logs_schema.formats import wagap
from logs_schema.formats.reading import BadRow
from logs_schema.formats.wagap_spec import allowed_classes, parse_nodes
from tests.logs_schema.collecting import at, collect, written

CORES = {"zewura": 80.0, "zegox": 12.0}
MACHINES = ("0 zewura 2 80 1 1048576", "1 zegox 3 12 0.5 524288")


def job(
    number, nodes, *, submit=1_356_996_000, wait=10, run=100, spec="1:ppn=1", memory=2**31, requested=3600
):
    listed = ",".join(nodes)
    cores = len(nodes)
    return (
        f"{number} {submit} {wait} {run} {cores} 1 1024 {cores} {requested} {memory} 1 62 1 1 -1 1 1 1 "
        f"{{{listed}}} q_1d {spec}"
    )


def read(folder, *lines, machines=MACHINES):
    written(folder, "log.swf.machines", *machines)
    return collect(wagap, [written(folder, "log.swf", *lines)])


def test_a_job_becomes_this_row(tmp_path):
    found = read(tmp_path, job(3, ["1129"] * 4, spec="1:ppn=4:x86_64:cl_zewura#excl"))
    assert found.rejects == []
    assert found.rows["requests"] == [
        {
            "num_nodes": 1,
            "candidates": ["zewura"],
            "offered_node": "1129",
            "ran_node": "1129",
            "ran_nodes": None,
            "request_id": "3",
            "arrival": at(1_356_996_000),
            "site": "cerit-sc",
            "service": "q_1d",
            "agent": "62",
            "queue": "q_1d",
            "cpu_cores": 4.0,
            "memory_gib": 2.0,
            "requested_run_s": 3600.0,
            "start": at(1_356_996_010),
            "finish": at(1_356_996_110),
            "run_s": None,
            "status": "completed",
        }
    ]


def test_several_nodes_are_listed_in_equal_shares(tmp_path):
    found = read(tmp_path, job(1, ["5", "6", "5", "6"]), job(2, ["5", "6", "6"]))
    even, uneven = found.rows["requests"]
    assert (even["num_nodes"], even["ran_nodes"]) == (2, ["5", "6"])
    assert (uneven["num_nodes"], uneven["ran_nodes"]) == (2, ["5", "6", "6"])


def test_class_is_the_smallest_that_holds_the_peak_of_concurrent_cores(tmp_path):
    found = read(
        tmp_path,
        job(1, ["a"] * 12, submit=0, wait=0, run=100),
        job(2, ["a"] * 12, submit=0, wait=100, run=100),
        job(3, ["b"] * 12, submit=0, wait=0, run=100),
        job(4, ["b"] * 1, submit=0, wait=99, run=100),
    )
    classes = {row["node_id"]: row["node_class"] for row in found.rows["nodes"]}
    assert (classes["a"], classes["b"]) == ("zegox", "zewura")


def test_a_job_that_the_log_names_twice_is_in_use_once(tmp_path):
    twice = [job(1, ["a"] * 12), job(2, ["b"] * 80)] * 2
    classes = {row["node_id"]: row["node_class"] for row in read(tmp_path, *twice).rows["nodes"]}
    assert (classes["a"], classes["b"]) == ("zegox", "zewura")


def test_specifications_of_its_jobs_also_tell_a_nodes_class(tmp_path):
    found = read(tmp_path, job(1, ["a"], spec="1:ppn=1:cl_zewura"), job(2, ["b"]))
    classes = {row["node_id"]: row["node_class"] for row in found.rows["nodes"]}
    assert (classes["a"], classes["b"]) == ("zewura", "zegox")


def test_the_inventory_is_complete_with_nodes_never_seen(tmp_path):
    found = read(tmp_path, job(1, ["a"] * 13), job(2, ["b"]))
    assert [
        (row["node_id"], row["node_class"], row["cpu_cores"], row["memory_gib"])
        for row in found.rows["nodes"]
    ] == [
        ("a", "zewura", 80.0, 1.0),
        ("b", "zegox", 12.0, 0.5),
        ("zewura-unseen-1", "zewura", 80.0, 1.0),
        ("zegox-unseen-1", "zegox", 12.0, 0.5),
        ("zegox-unseen-2", "zegox", 12.0, 0.5),
    ]
    assert {row["tier"] for row in found.rows["nodes"]} == {"pool"}


def test_more_nodes_than_the_inventory_lists_are_kept_and_told(tmp_path):
    found = read(tmp_path, *(job(number, [f"n{number}"] * 13) for number in range(3)))
    assert [row["node_class"] for row in found.rows["nodes"]].count("zewura") == 3
    note = " ".join(wagap.facts([tmp_path / "log.swf"])["notes"])
    assert "3 nodes of class zewura occur and the inventory lists 2" in note
    assert "class zegox" not in note


def test_the_class_it_ran_on_is_always_a_candidate_and_contradictions_are_counted(tmp_path):
    lines = (job(1, ["a"] * 13), job(2, ["a"], spec="1:ppn=1:host=zegox10.cerit-sc.cz"))
    found = read(tmp_path, *lines)
    assert found.rows["requests"][1]["candidates"] is None
    facts = wagap.facts([tmp_path / "log.swf"])
    assert "1 job ran on a class that their specification excludes" in " ".join(facts["notes"])
    assert "every job is taken as completed" in facts["limits"]["outcomes"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (job(9, ["a"], run=-5), "negative:run"),
        (job(9, ["a"], requested=0), "zero:requested_time"),
        (job(9, ["a"], memory=-2), "negative:requested_memory"),
        (job(9, ["a", ""]), "bad_node_list"),
        (job(9, ["a"]).replace("{a}", "a"), "bad_node_list"),
        (job(9, ["a"]).replace("{a}", "{a,a}"), "node_list_length"),
        (job(9, ["a"], spec="1:ppn=many"), "not_a_number:ppn"),
        (job(9, ["a"]) + " x", "field_count"),
    ],
)
def test_each_kind_of_bad_line_is_rejected_by_its_rule(tmp_path, line, rule):
    found = read(tmp_path, job(1, ["a"]), line, job(2, ["a"]))
    assert found.rejects == [(rule, 2)]
    assert found.lines["requests"] == [1, 3]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ("1:ppn=12", {"zewura", "zegox"}),
        ("1:ppn=13", {"zewura"}),
        ("1:ppn=1.5:brno", {"zewura", "zegox"}),
        ("1:ppn=64:x86_64:cl_zewura#excl", {"zewura"}),
        ("2:ppn=8:cl_zegox:nfs4", {"zegox"}),
        ("1:ppn=1:^cl_zewura", {"zegox"}),
        ("1:ppn=1:nodecpus12", {"zegox"}),
        ("1:ppn=1:host=zewura10", {"zewura"}),
        ("1:zegox17.cerit-sc.cz", {"zegox"}),
        ("zewura2.cerit-sc.cz:ppn=1:brno", {"zewura"}),
        ("1:ppn=1:^zewura12.cerit-sc.cz", {"zewura", "zegox"}),
        ("1:ppn=1+3:ppn=40", {"zewura"}),
        ("1:cl_zewura+1:cl_zegox", {"zewura", "zegox"}),
        ("1:ppn=1:mem=2gb:debian", {"zewura", "zegox"}),
        ("1", {"zewura", "zegox"}),
    ],
)
def test_what_a_specification_allows(spec, allowed):
    assert allowed_classes(spec, CORES) == allowed


def test_node_lists():
    assert parse_nodes("{1,1,2}") == ("1", "1", "2")
    with pytest.raises(BadRow, match="bad_node_list"):
        parse_nodes("{}")


def test_a_node_busier_than_any_class_is_an_error(tmp_path):
    with pytest.raises(FormatError, match="81 cores at once"):
        read(tmp_path, job(1, ["a"] * 81))


def test_a_missing_or_broken_inventory_is_named(tmp_path):
    path = written(tmp_path, "log.swf", job(1, ["a"]))
    with pytest.raises(FormatError, match=r"log\.swf\.machines"):
        collect(wagap, [path])
    with pytest.raises(FormatError, match="line 2"):
        read(tmp_path, job(1, ["a"]), machines=(MACHINES[0], "1 zegox many"))
    with pytest.raises(FormatError, match="no class of machines"):
        read(tmp_path, job(1, ["a"]), machines=())
