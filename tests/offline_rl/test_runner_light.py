"""An installation that only runs policies: NumPy (and ONNX Runtime), nothing of the training stack."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evaluation.commands.cli import TRAINING_STACK
from tests.offline_rl.bundles import FREE, made_policy, made_system

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
DECIDE = """
from offline_rl.runner import Node, Request, load
nodes = [Node("edge-0"), Node("edge-1"), Node("cloud")]
for backend in ("numpy", "onnx"):
    policy = load(sys.argv[1], backend)
    ledger = policy.ledger(nodes)
    print(policy.decide(nodes, Request(site="site-0"), 0.0).node, ledger.decide(Request(site="site-0"), 0.0).node)
print(policy.explain(nodes, Request(site="site-0"), 0.0).request["has_deadline"])
"""
CLI = """
from evaluation.commands.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    encoding, _ = made_system()
    folder = tmp_path_factory.mktemp("light") / "bundle"
    made_policy(folder, encoding, FREE)
    return folder


def without(blocked: set[str], program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(blocked=blocked) + program
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_decisions_need_numpy_and_onnxruntime_only(bundle):
    done = without(TRAINING_STACK | {"onnx"}, DECIDE, bundle)
    assert done.returncode == 0, done.stderr
    *decisions, last = done.stdout.splitlines()
    assert len({word for line in decisions for word in line.split()}) == 1
    assert last == "0.0"


def test_inspect_needs_no_training_stack_either_and_tells_the_same(bundle):
    bare = without(TRAINING_STACK | {"onnx", "onnxruntime"}, CLI, "inspect", bundle)
    assert bare.returncode == 0, bare.stderr
    shown = without({"nothing"}, CLI, "inspect", bundle)
    facts = json.loads(without({"nothing"}, CLI, "inspect", bundle, "--json").stdout)
    assert shown.returncode == 0, shown.stderr
    for text in (bare.stdout, shown.stdout):
        for word in (
            facts["manifest"]["content_hash"],
            "golden decisions",
            "edge-2",
            "oldest_wait",
            "legality",
        ):
            assert word in text
    assert facts["contract"]["problem"] == "placement"
    assert facts["checked"]["num_golden"] > 100


def test_other_commands_say_kindly_what_is_missing():
    done = without(TRAINING_STACK, CLI, "simulate", "--preset", "small", "--days", 1, "--out", "log")
    assert done.returncode == 2
    assert "pip install 'WHEEL[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_asks_for_no_more():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [requirement.split(">=")[0] for requirement in project["dependencies"]]
    assert names == ["numpy"]
    assert [one.split(">=")[0] for one in project["optional-dependencies"]["runner"]] == ["onnxruntime"]
