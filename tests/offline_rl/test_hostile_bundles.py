"""Bundles whose hashes are right and whose content is not: replaced, impossible, broken or much too large."""

import io
import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from evaluation.commands.cli import main
from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl import signing
from offline_rl.bundle import ARRAYS, GOLDEN, GRAPH, KIND, QUESTIONS, read_arrays
from offline_rl.contract import CONTRACT
from offline_rl.runner import load
from offline_rl.runner.loading import network_while
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.policies import PolicySlot, load_policy
from tests.serving.bundles import make_bundle

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("hostile") / "bundle", with_graph=True)


def forged(bundle: Path, folder: Path, change: Change) -> Path:
    """A bundle that somebody has changed and given a manifest that agrees."""
    with writing(folder, KIND) as draft:
        for name in (CONTRACT, ARRAYS, GRAPH, GOLDEN, QUESTIONS):
            shutil.copy(bundle / name, draft / name)
        change(draft)
    return folder


def contract(edit: Callable[[dict], object]) -> Change:
    """Changes the contract; numbers that JSON does not know are written as Python writes them."""

    def change(draft: Path) -> None:
        facts = json.loads((draft / CONTRACT).read_text())
        edit(facts)
        (draft / CONTRACT).write_text(json.dumps(facts))

    return change


def setting(**values: object) -> Change:
    return contract(lambda facts: facts["setting"].update(values))


def first_node(**values: object) -> Change:
    return contract(lambda facts: facts["setting"]["nodes"][0].update(values))


def golden(edit: Callable[[dict], dict]) -> Change:
    def change(draft: Path) -> None:
        np.savez(draft / GOLDEN, **edit(read_arrays(draft / GOLDEN)))

    return change


def text(name: str, content: str) -> Change:
    return lambda draft: (draft / name).write_text(content)


def reversed_nodes(facts: dict) -> None:
    facts["setting"]["nodes"].reverse()
    facts["choices"].reverse()
    facts["setting"]["candidate_sets"] = [facts["choices"]]


def only_one_legal(arrays: dict) -> dict:
    legal = np.zeros_like(arrays["legal"])
    legal[np.arange(len(legal)), arrays["action"]] = True
    return arrays | {"legal": legal}


IMPOSSIBLE: dict[str, tuple[Change, str]] = {
    "nodes reversed with choices": (contract(reversed_nodes), "golden question 0"),
    "another capacity": (first_node(cpu_cores=32.0), "golden question"),
    "another unit": (setting(time_unit_s=2.0), "golden question"),
    "other run times": (setting(run_of_service_s=[5.0, 50.0, 5.0]), "golden question"),
    "NaN capacity": (first_node(cpu_cores=float("nan")), "not finite"),
    "infinite unit": (setting(time_unit_s=float("inf")), "not finite"),
    "number too large": (text(CONTRACT, '{"schema_version": 1e999}'), "not finite"),
    "negative capacity": (first_node(memory_gib=-1.0), "at least 0"),
    "machine above its node": (first_node(machine_cpu_cores=17.0), "no machine larger"),
    "NaN acceptance": (setting(acceptance_of_scenario=[[float("nan"), 1.0, 1.0]]), "not finite"),
    "acceptance above 1": (setting(acceptance_of_scenario=[[2.0, 1.0, 1.0]]), "must be shares"),
    "run times of long ago": (setting(run_of_service_s=[-1e300, 5.0, 5.0]), "run times must"),
    "endless ratio": (first_node(run_ratio=[10**400, 1.0, 1.0]), "OverflowError"),
    "a service twice": (setting(services=["unknown", "resize", "resize"]), "different words"),
    "strangers as candidates": (setting(candidate_sets=[["node-0", "else"]]), "first candidate set"),
    "machines of nobody": (setting(node_of_machine={"m": "else"}), "machines must belong"),
    "setting of another type": (setting(nodes={"node-0": 1}), "none of a placement policy"),
    "one golden row": (golden(lambda arrays: {name: array[:1] for name, array in arrays.items()}), "1 rows"),
    "one legal choice in every row": (golden(only_one_legal), "in 0 of 32 rows"),
    "nothing legal": (golden(lambda arrays: arrays | {"legal": arrays["legal"] & False}), "is not legal"),
    "goldens of other shapes": (golden(lambda arrays: arrays | {"context": arrays["legal"]}), "context"),
    "no questions": (lambda draft: (draft / QUESTIONS).unlink(), "questions cannot be read"),
    "too few questions": (text(QUESTIONS, "[]"), "at least 4"),
    "questions that are none": (text(QUESTIONS, "[1, 2, 3, 4]"), "golden question 0: TypeError"),
    "deep JSON": (text(CONTRACT, "[" * 100_000), "RecursionError"),
    "a list as contract": (text(CONTRACT, "[]"), "TypeError"),
    "text as widths": (contract(lambda facts: facts["network"].update(hidden="88")), "positive widths"),
    "features without names": (contract(lambda facts: facts["choice_features"][0].update(name=3)), "text"),
    "a range upside down": (contract(lambda facts: facts["choice_features"][0].update(low=30.0)), "range of"),
    "a network without end": (
        contract(lambda facts: facts["network"].update(hidden=[10**9])),
        "not the one of",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_replaced_bundle_that_cannot_be_is_refused_by_name(bundle: Path, tmp_path: Path, name: str) -> None:
    change, message = IMPOSSIBLE[name]
    with pytest.raises(ProductError, match=message):
        load(forged(bundle, tmp_path / "forged", change))


def test_a_contract_without_end_is_not_parsed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_rl.contract.MAX_JSON_BYTES", 1000)
    with pytest.raises(ProductError, match="bytes, allowed 1,000"):
        load(bundle)


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := content.find(signature, at + 1)) >= 0:
            (flags,) = struct.unpack_from("<H", content, at + offset)
            struct.pack_into("<H", content, at + offset, flags | 1)
    path.write_bytes(content)


def unpacking_to(path: Path, num_bytes: int, told: int) -> None:
    """One array that claims `told` numbers, in a member that unpacks to `num_bytes`."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (told,)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("score/kernel.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(num_bytes // 2**20):
            member.write(bytes(2**20))


def broken_member(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.find(b"\x93NUMPY")
    content[at + 200] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (encrypted, "encrypted"),
        (broken_member, "cannot be read"),
        (lambda path: unpacking_to(path, 64 * 2**20, 16 * 2**20), "arrays of .* bytes, allowed"),
        (lambda path: unpacking_to(path, 0, 10**12), "of shape"),
        (lambda path: path.write_bytes(zlib.compress(b"no archive")), "BadZipFile"),
        (lambda path: np.savez(path, **{"score/kernel": np.array([{}], object)}), "cannot be read"),
    ],
    ids=["encrypted", "broken", "bomb", "header without bytes", "no archive", "objects"],
)
def test_broken_arrays_are_refused_before_they_are_unpacked(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Change, message: str
) -> None:
    unpacked = []
    read = np.lib.format.read_array
    monkeypatch.setattr(
        "offline_rl.bundle.npy.read_array",
        lambda stream, **options: unpacked.append(stream.name) or read(stream, **options),
    )
    with pytest.raises(ProductError, match=message):
        load(forged(bundle, tmp_path / "forged", lambda draft: damage(draft / ARRAYS)))
    assert not unpacked or damage is broken_member


def test_a_graph_without_logits_is_refused(bundle: Path, tmp_path: Path) -> None:
    def rename(draft: Path) -> None:
        model = onnx.load_model_from_string((draft / GRAPH).read_bytes())
        model.graph.output[0].name = model.graph.node[-2].output[0] = model.graph.node[-1].input[0] = "scores"
        (draft / GRAPH).write_bytes(model.SerializeToString())

    with pytest.raises(ProductError, match="gives \\['scores', 'action'\\]"):
        load(forged(bundle, tmp_path / "forged", rename), "onnx")


def test_strangers_in_a_bundle_are_refused(bundle: Path, tmp_path: Path) -> None:
    for number, (add, message) in enumerate(
        [
            (lambda folder: (folder / ".hidden").write_text("x"), r"foreign: \.hidden"),
            (lambda folder: os.mkfifo(folder / "pipe"), "no pipes"),
            (
                lambda folder: os.truncate(os.open(folder / "big", os.O_CREAT | os.O_WRONLY), 3 * 2**30),
                "foreign: big",
            ),
        ]
    ):
        copied = shutil.copytree(bundle, tmp_path / str(number))
        add(copied)
        with pytest.raises(ProductError, match=message):
            load(copied)


def test_a_wholly_replaced_bundle_is_told_by_its_content_hash(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = load(bundle).content_hash
    other = make_bundle(tmp_path / "other", seed=1)
    assert load(bundle, expect=own).content_hash == own
    with pytest.raises(ProductError, match=own):
        load(other, expect=own)
    for command in (["inspect", str(other)], ["serve", str(other), "--port", "0"]):
        assert main([*command, "--expect", own]) == 2
        assert "not the bundle that was expected" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main([*command, "--expect", "abc"])
    assert main(["inspect", str(bundle), "--expect", own]) == 0


def test_a_reload_of_anything_broken_is_refused_and_counted(bundle: Path, tmp_path: Path) -> None:
    served = shutil.copytree(bundle, tmp_path / "served")
    metrics = Metrics()
    slot = PolicySlot(lambda: load_policy(served), metrics)
    for name, (change, _) in IMPOSSIBLE.items():
        shutil.rmtree(served)
        forged(bundle, served, change)
        with pytest.raises(ProductError):
            slot.reload()
        assert slot.policy.content_hash == load(bundle).content_hash, name
    refused = metrics.registry.get_sample_value("schedtwin_reloads_total", {"outcome": "refused"})
    assert refused == len(IMPOSSIBLE)


def test_a_bundle_whose_files_are_replaced_while_they_are_read_is_refused(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a copy in place: the network of one bundle must not serve under the content hash of another."""
    shutil.copytree(bundle, tmp_path / "bundle")
    other, verified = make_bundle(tmp_path / "other", seed=1, with_graph=True), signing.verified

    def then_replaced(folder: Path, kind: str, **how: str | None) -> str:
        content_hash = verified(folder, kind, **how)
        for name in (ARRAYS, GOLDEN, QUESTIONS):
            shutil.copy(other / name, folder / name)
        return content_hash

    monkeypatch.setattr(signing, "verified", then_replaced)
    with pytest.raises(ProductError, match="altered"):
        load(tmp_path / "bundle")


def test_a_bundle_that_changes_while_more_of_it_is_read_is_refused(bundle: Path, tmp_path: Path) -> None:
    """As an orchestrator's tables are, which stand beside the network."""
    copied = shutil.copytree(bundle, tmp_path / "bundle")
    with network_while(copied) as policy:
        assert policy.content_hash == load(bundle).content_hash
    with pytest.raises(ProductError, match="altered"), network_while(copied):
        (copied / QUESTIONS).write_bytes((copied / QUESTIONS).read_bytes()[:-1] + b" ")
