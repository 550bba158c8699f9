"""Options of a command that say nothing of what it is asked to do are refused, and those given outdo a quick form's."""

from argparse import Namespace
from types import SimpleNamespace

import pytest

from evaluation.commands import assign, order, reproduce_table2
from evaluation.commands.actions import LateParser
from evaluation.commands.cli import main
from evaluation.problems.ordering import steps
from evaluation.problems.ordering.exported_order import Winner
from evaluation.problems.ordering.replaying import ReplayConfig
from evaluation.reproduction import corais
from logs_schema import ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress


def parsed(command, *words) -> Namespace:
    parser = LateParser("schedtwin", declare=command)
    return parser.parse_args([str(word) for word in words])


@pytest.mark.parametrize(
    ("figure", "words", "named"),
    [
        ("carry_over", ("--repeats", "3"), "--repeats"),
        ("carry_over", ("--learned", "gpg"), "--learned"),
        ("central", ("--updates", "3"), "--updates"),
        ("central", ("--days", "1,7"), "--days"),
    ],
)
def test_a_figure_refuses_what_is_of_the_table_alone(figure, words, named, tmp_path, capsys):
    out = tmp_path / "figure"
    assert main(["reproduce", "kmps", "--figure", figure, *words, "--out", str(out)]) == 2
    assert f"the figure {figure} does not take {named}" in capsys.readouterr().err
    assert not out.exists()


def test_archives_take_no_options_of_a_simulated_log(tmp_path, capsys):
    words = [
        "reproduce",
        "table1",
        str(tmp_path),
        "--days",
        "9",
        "--seed",
        "0",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 2
    assert "a table of archives does not take --days, --seed" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("bench", "truth"), ("reproduce", "table2")])
def test_references_that_are_left_out_are_not_described(words, tmp_path, capsys):
    assert main([*words, "--no-reference", "--references", str(tmp_path)]) == 2
    assert "--no-reference, --references" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["order", "replay"])
def test_what_is_not_written_replaces_nothing(command, tmp_path, capsys):
    with ArchiveWriter(tmp_path / "archive"):
        pass
    assert main([command, str(tmp_path / "archive"), "--replace"]) == 2
    assert "nothing is written that could replace anything" in capsys.readouterr().err


def test_regions_in_rounds_have_the_seed_of_their_table(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(corais, "compare_rounds", lambda _number, seeds, _: asked.append([*seeds]) or [])
    for number in (0, 1):
        corais.live_rounds(corais.CoraisConfig(seed=number, round_seeds=3), tmp_path, SilentProgress())
    assert asked == [[0, 1, 2], [3, 4, 5]]


def test_what_a_table_is_made_with_is_not_replaced_by_that_of_another():
    """Another training would take its place in a shared folder."""
    asked = (
        (),
        ("--no-log-learners",),
        ("--uncertified",),
        ("--unguarded",),
        ("--unguarded", "--no-log-learners"),
    )
    configs = [
        reproduce_table2._configured(parsed(reproduce_table2.add_arguments, *words)) for words in asked
    ]
    assert configs[3] == configs[4]
    names = [reproduce_table2._folder_name(config, False) for config in configs[:4]]
    assert len(set(names)) == len(names)


def test_rules_alone_take_no_options_of_a_training():
    for words in (("--seeds", 3), ("--index-only",), ("--ppo-seeds", 2), ("--updates", 4)):
        with pytest.raises(ConfigError, match=f"a training that is left out does not take {words[0]}"):
            order.config_of(parsed(order.add_arguments, "archive", "--rules-only", *words))
    assert order.config_of(parsed(order.add_arguments, "archive", "--rules-only")).training is None


def test_what_is_asked_for_outdoes_a_quick_form():
    quick = order.config_of(parsed(order.add_arguments, "archive", "--quick")).training
    assert (quick.seeds, quick.num_updates) == ((0,), 2)
    asked = ("archive", "--quick", "--seeds", 3, "--updates", 9)
    found = order.config_of(parsed(order.add_arguments, *asked)).training
    assert (found.seeds, found.num_updates, found.num_streams) == ((0, 1, 2), 9, quick.num_streams)
    usual = order.config_of(parsed(order.add_arguments, "archive")).training
    assert usual.seeds == (0, 1, 2, 3, 4)
    words = ("--archive", "log", "--out", "bundle", "--quick")
    config = assign.config_of(parsed(assign._add_train, *words, "--requests", 80))
    assert (config.num_requests, config.num_held_out) == (80, 8)


def test_a_replay_of_a_whole_log_has_no_jobs_to_begin_with():
    assert ReplayConfig(warm="logged").days is None
    with pytest.raises(ConfigError, match="begins with nothing") as refused:
        ReplayConfig(warm="easy")
    assert "--days" in refused.value.advice


def test_a_seed_or_a_comparison_that_would_decide_nothing_is_refused(monkeypatch, tmp_path):
    policy = SimpleNamespace(config=SimpleNamespace(seeds=(0, 1)), chosen=None)
    monkeypatch.setattr(steps, "load_queue_policy", lambda _: policy)
    monkeypatch.setattr(steps, "read_manifest", lambda *_: SimpleNamespace(extra={}, content_hash=""))
    with pytest.raises(ConfigError, match="whatever a comparison found"):
        steps.build_queue_bundle(tmp_path / "bundle", tmp_path, rule="saf", comparison_path=tmp_path)
    monkeypatch.setattr(steps, "_refuse_other_comparison", lambda *_: None)
    monkeypatch.setattr(steps, "load_comparison", lambda _: None)
    monkeypatch.setattr(steps, "winner_to_export", lambda *_, **__: Winner("saf+easy", "words"))
    with pytest.raises(ConfigError, match=r"chose saf\+easy, which has no seed"):
        steps.build_queue_bundle(tmp_path / "bundle", tmp_path, seed=1, comparison_path=tmp_path)
