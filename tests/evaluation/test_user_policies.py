"""Anyone's policy is judged beside ours; one that fails is refused by its name, and takes nobody along."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import LEAST_BACKLOG, Baseline
from evaluation.baselines.baseline import node_feature
from evaluation.commands.cli import main
from evaluation.comparison.bootstrap import Estimate, IntervalConfig
from evaluation.comparison.entries import OffPolicyRow
from evaluation.comparison.shifts import TestDays
from evaluation.jobs.engine.config import EngineConfig
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.config import JudgeConfig
from evaluation.judges.host_policy import HostPolicy
from evaluation.judges.judge import Candidate, Evaluation, replay_judge, replay_program
from evaluation.judges.named import error_in_words
from evaluation.judges.placement_entries import PolicyEntries, enter_players, evaluate
from evaluation.judges.players import of_policy, players_of
from evaluation.judges.user_policies import (
    Takes,
    UserPolicy,
    enter,
    lacking_bundles,
    named_policies,
    with_training_days,
)
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement import comparing
from evaluation.problems.placement.judging_tasks import judge_ahead
from evaluation.problems.placement.kit import PLACEMENT_KIT
from logs_schema.errors import ConfigError
from logs_schema.product import writing
from logs_schema.progress import SilentProgress
from offline_rl.contract import read_contract, write_contract
from offline_rl.networks import actor
from offline_rl.recipes.schedulers import example_for
from tests.evaluation.made_reports import made_comparison
from tests.serving.bundles import make_bundle
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.types import Cluster


def least_backlog(_key, observation, legal):
    backlog = node_feature(observation, "backlog")
    return jnp.argmin(jnp.where(legal, jnp.where(jnp.isfinite(backlog), backlog, 1e9), jnp.inf), axis=0)


def in_numpy(_key, observation, legal):
    backlog = node_feature(observation, "backlog").copy()
    for node in range(len(backlog)):  # what no tracer can follow
        if not np.isfinite(backlog[node]).any():
            backlog[node] = 1e9
    return np.argmin(np.where(legal, np.minimum(backlog, 1e9), np.inf), axis=0)


def misspelt(_key, observation, _legal):
    return observation.nodes[0]


def of_all_nodes(_key, _observation, legal):
    return legal.astype(jnp.int32)


def shares(_key, _observation, legal):
    return legal.mean(axis=0)


def shares_in_numpy(_key, _observation, legal):
    return np.asarray(legal).mean(axis=0)


def forgets(_key, _observation, legal):
    np.asarray(legal).argmax(axis=0)


def the_first(_key, _observation, legal):
    return jnp.zeros(legal.shape[1:], jnp.int32)


def beyond_32_bits(_key, _observation, legal):
    return np.argmax(np.asarray(legal), axis=0) + 2**32


def breaks_down(_key, _observation, legal):
    if np.asarray(legal).sum() < legal.size:  # not while it is tried on shapes, where all is legal
        raise RuntimeError("no such node here")
    return np.zeros(legal.shape[1:], int)


def leaves(_key, _observation, legal):
    if np.asarray(legal).sum() < legal.size:
        sys.exit()
    return np.zeros(legal.shape[1:], int)


class Found:
    """What came of some policies, judged by replay in one program."""

    def __init__(self, entered: PolicyEntries, results: list[tuple[Candidate, Evaluation]]) -> None:
        self.entered = entered
        self.node = {candidate.name: result.decisions.node for candidate, result in results}


@pytest.fixture(scope="module")
def found() -> Found:
    cluster = made_cluster()
    encoding = made_encoding(cluster, depth=40)
    rows = made_rows(np.random.default_rng(5), cluster, 90)
    windows = cut_windows(rows, np.ones(90, bool), encoding, num_steps=48)
    example = example_for(encoding, windows)
    network = actor(example, hidden=(8,))
    given: dict[str, UserPolicy] = {
        "mine": least_backlog,
        "rule": Baseline("any", "a rule made for a cluster", _rule),
        "in_numpy": in_numpy,
        "misspelt": misspelt,
        "of_all_nodes": of_all_nodes,
        "shares": shares,
        "shares_in_numpy": shares_in_numpy,
        "forgets": forgets,
        "the_first": the_first,
        "beyond_32_bits": beyond_32_bits,
        "breaks_down": breaks_down,
        "leaves": leaves,
        "leaves_at_once": lambda *_: sys.exit(3),
        "gone": Path("no") / "such" / "bundle",
    }
    entered = enter_players(given, encoding, example, ("history", LEAST_BACKLOG.name))
    players = {**players_of(cluster, network, (LEAST_BACKLOG,)), **entered.window_players()}
    judge = replay_judge(
        replay_program(encoding, players), encoding, windows, (windows.num_steps, windows.num_windows)
    )
    nothing = network.init(jax.random.key(0))
    names = ("history", LEAST_BACKLOG.name, *entered.names)
    tried = [Candidate(name, name, nothing) for name in names]
    return Found(entered, evaluate(judge, jax.random.key(1), tried, entered, 7))


def _rule(cluster: Cluster):
    assert cluster.num_nodes > 1
    return least_backlog


def test_a_policy_of_ones_own_is_played_as_ours_are(found: Found) -> None:
    assert set(found.node) == {"history", LEAST_BACKLOG.name, "mine", "rule", "in_numpy"}
    np.testing.assert_array_equal(found.node["mine"], found.node["rule"])
    np.testing.assert_array_equal(found.node["mine"], found.node["in_numpy"])
    assert len(np.unique(found.node["mine"])) > 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("misspelt", "'misspelt' raised AttributeError: .*nodes"),
        ("of_all_nodes", r"'of_all_nodes' returns int32\[\d+, 1, 3\] where whole numbers \[1, 3\]"),
        (
            "shares",
            r"'shares' returns float32\[1, 3\] where whole numbers \[1, 3\].*what to do: return indices",
        ),
        (
            "shares_in_numpy",
            r"^policy 'shares_in_numpy' returns float(32|64)\[1, 3\] where whole numbers \[1, 3\].*indices",
        ),
        ("forgets", r"'forgets' returns NoneType where whole numbers"),
        (
            "the_first",
            r"'the_first' chose a node that is not legal in \d+ of 90 decisions\n  where: replay, shift 7d",
        ),
        ("beyond_32_bits", r"'beyond_32_bits' chose a node that is not legal in 90 of 90 decisions"),
        ("breaks_down", "'breaks_down' raised RuntimeError: no such node here\n  where: replay, shift 7d"),
        ("leaves", "'leaves' raised SystemExit: no message\n  where: replay, shift 7d"),
        ("leaves_at_once", "'leaves_at_once' raised SystemExit: 3"),
        ("gone", "^policy 'gone': there is no bundle here\n  where: /.*no/such/bundle"),
    ],
)
def test_one_that_fails_is_refused_by_name(found: Found, name: str, said: str) -> None:
    assert name not in found.node
    with pytest.raises(type(found.entered.refused[name]), match=f"(?s){said}"):
        raise found.entered.refused[name]


def test_one_that_fails_at_logged_decisions_alone_has_no_off_policy_estimates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it raised there is told, as elsewhere: a compiled program goes on with zeros in its place."""
    failing, entered, told = (
        HostPolicy(breaks_down),
        PolicyEntries(),
        SimpleNamespace(stage=SilentProgress().stage),
    )
    entered.players["mine"], entered.hosted["mine"] = of_policy(failing), failing

    def estimates(*_: object) -> list[OffPolicyRow]:
        failing.error = ValueError("queue 7 is unknown")
        nothing = Estimate(0.0, None, None, 1, "")
        return [
            OffPolicyRow(0, name, "dr", nothing, 1.0, 1.0, 1, estimated=True) for name in ("mine", "ours")
        ]

    for name, stub in {
        "OffPolicyJudge": lambda *_: SimpleNamespace(estimates=estimates),
        "probability_program": lambda *_: None,
        "players_of": lambda *_: {},
        "_candidates_of": lambda *_: [Candidate("ours", "ours", None)],
        "_network_of": lambda *_: actor,
        "lacks": lambda *_: "",
        "unspecified": lambda *_: frozenset(),
        "example_for": lambda *_: None,
        "common_shape": lambda _: (1, 1, 1),
    }.items():
        monkeypatch.setattr(comparing, name, stub)
    case = SimpleNamespace(
        config=JudgeConfig(),
        intervals=IntervalConfig(),
        wants=lambda *_: True,
        main=None,
        archive=None,
        rules={},
        twin=SimpleNamespace(encoding=made_encoding(made_cluster())),
        keep=Unfinished(),
    )
    shift, windows = TestDays(0, (), None), SimpleNamespace()
    rows = comparing._off_policy(case, [shift], [windows], entered, [], told)  # type: ignore[arg-type, list-item]
    assert [row.policy for row in rows] == ["ours"]
    assert "queue 7 is unknown\n  where: off policy, shift 0d" in str(entered.refused["mine"])


def test_folders_without_a_bundle_are_named_before_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    given = {"mine": the_first, "right": make_bundle(tmp_path / "bundle"), "wrong": tmp_path / "empty"}
    ((name, error),) = lacking_bundles(given).items()
    assert name == "wrong"
    assert error.what == "policy 'wrong': there is no bundle here"
    assert error.where == str(tmp_path / "empty")

    def compares(*_: object) -> None:
        raise ConfigError("this is where it compares")

    monkeypatch.setattr("evaluation.problems.kits.kit_of", lambda _: PLACEMENT_KIT)
    monkeypatch.setattr("evaluation.commands.settings.make_step", compares)
    named = [
        word for name, folder in given.items() if name != "mine" for word in ("--policy", f"{name}={folder}")
    ]
    inputs = [str(tmp_path / name) for name in ("archive", "twin")]
    for path in inputs:
        with writing(path, Path(path).name):
            pass
    assert main(["compare", *inputs, "--out", str(tmp_path / "out"), *named]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"warning: {error.what} ({error.where}); it will be left out"
    assert told[1] == "schedtwin compare: this is where it compares"


def test_worker_processes_that_are_not_used_for_policies_of_the_users_are_named(tmp_path: Path) -> None:
    told = io.StringIO()
    keep = Unfinished(tmp_path, EngineConfig(workers=2))
    judge_ahead(
        tmp_path, tmp_path, None, RunConfig(), None, {"mine": the_first}, keep, SilentProgress(told)  # type: ignore[arg-type]
    )  # fmt: skip
    assert "(mine)" in told.getvalue()
    assert "worker processes are not used" in told.getvalue()


def test_a_bundle_that_was_trained_on_test_days_is_named(tmp_path: Path) -> None:
    found = made_comparison()
    bundle, name = make_bundle(tmp_path / "bundle"), found.policies[0].name
    for last_day, told in (("2030-01-15", True), ("2030-01-14", False)):
        write_contract(bundle, replace(read_contract(bundle), trained_on={"last_day": last_day}))
        notes = with_training_days(found, {name: bundle, "left out": Path("gone"), "mine": the_first}).notes
        about = [note for note in notes if note not in found.notes]
        assert len(about) == told
        assert all(f"{name} was trained on days up to {last_day}" in note for note in about)
        assert all("of the shifts 0d, 1d, 7d are among them" in note for note in about)


def test_of_an_error_the_line_that_says_most_is_shown() -> None:
    with pytest.raises(jax.errors.TracerArrayConversionError) as caught:
        jax.eval_shape(np.asarray, jax.ShapeDtypeStruct((3,), jnp.float32))
    assert "was called on traced array with shape float32[3]" in error_in_words(caught.value)
    assert error_in_words(ValueError("of a program\nno such node")) == "ValueError: no such node"
    assert error_in_words(KeyError()) == "KeyError: no message"


def test_a_bundle_named_by_a_text_is_refused_with_what_to_do() -> None:
    entered = enter({"old": "work/bundle"}, (), Takes("a function", lambda _, policy: policy))  # type: ignore[dict-item]
    told = str(entered.refused["old"])
    assert "where: 'work/bundle'" in told
    assert "what to do: a folder of a bundle is given as pathlib.Path" in told


def test_names_of_ours_cannot_be_taken() -> None:
    encoding = made_encoding(made_cluster())
    with pytest.raises(ConfigError, match="'history' is taken by a policy of the comparison"):
        enter_players({"history": least_backlog}, encoding, None, ("history",))


def test_policies_are_named_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine_of_mine.py").write_text(
        "def choose(key, observation, legal):\n    return legal.argmax(0)\n"
    )
    (tmp_path / "bundle").mkdir()
    found = named_policies(["a=mine_of_mine:choose", "old=bundle", "far=elsewhere/bundle"], tmp_path)
    assert found["a"](None, None, np.array([False, True])) == 1
    assert (found["old"], found["far"]) == (tmp_path / "bundle", tmp_path / "elsewhere" / "bundle")


def test_what_a_module_of_the_users_puts_on_the_path_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may import from there when the policy is called; the current folder is searched for that module alone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before, lib = [*sys.path], str(tmp_path / "lib")
    (tmp_path / "with_a_lib.py").write_text(f"import sys\nsys.path.insert(0, {lib!r})\nchoose = max\n")
    named_policies(["a=with_a_lib:choose"], tmp_path)
    assert sys.path == [lib, *before]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["mine"], "'mine' names no policy"),
        (["mine=nothing_there"], "neither a folder nor a function"),
        (["mine=no_such_module:choose"], "'mine' cannot be imported: ModuleNotFoundError"),
        (["mine=math:choose"], "'mine' cannot be imported: AttributeError"),
        (["mine=a_script:choose"], "'mine' cannot be imported: SystemExit: 0"),
        (["mine=./a_script.py:choose"], "a_script.py:choose' names a file\n.*named by its module"),
        (["mine=math:pi"], "'mine' is no function.*what the problem plays"),
        (["mine=math:sin", "mine=math:cos"], "given twice"),
    ],
)
def test_what_names_no_policy_is_refused(tmp_path: Path, texts: list[str], said: str) -> None:
    (tmp_path / "a_script.py").write_text("raise SystemExit(0)  # as an unguarded main does\n")
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        named_policies(texts, tmp_path)
