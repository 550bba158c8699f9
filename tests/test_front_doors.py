"""Every name that a package exports can be imported from it."""

import datetime as dt
from dataclasses import fields
from importlib import import_module
from inspect import isclass, isfunction

import pyarrow as pa
import pytest

from evaluation import CertifyConfig, JudgeConfig, simulate, validate
from logs_schema import (
    REQUESTS,
    Archive,
    ArchiveWriter,
    ConfigError,
    SchedtwinError,
    cast_rows,
    check_rows,
    complete,
    import_log,
)
from logs_schema.options import checked_progress
from logs_schema.progress import SilentProgress
from offline_rl import train
from offline_rl.api import Recipe
from twin.placement.model import PlacementTwin


@pytest.mark.parametrize("package", ["logs_schema", "twin", "offline_rl", "evaluation"])
def test_everything_exported_exists_and_is_documented(package):
    door = import_module(package)
    assert len(door.__all__) == len(set(door.__all__)) > 0
    for name in door.__all__:
        exported = getattr(door, name)
        assert exported.__doc__ or not (isclass(exported) or isfunction(exported))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = door.nothing_of_this_name


@pytest.mark.parametrize("wrong", [None, 3, b"folder", ["folder"]])
@pytest.mark.parametrize(
    ("package", "name", "before", "after"),
    [
        ("offline_rl", "load", (), ()),
        ("offline_rl", "load_network", (), ()),
        ("offline_rl", "load_queue", (), ()),
        ("logs_schema", "Archive", (), ()),
        ("logs_schema", "check_archive", (), ()),
        ("logs_schema", "ArchiveWriter", (), ()),
        ("logs_schema", "import_log", ("swf", ["log.swf"]), ()),
        ("evaluation", "simulate", ("small", 1, "mix", 0), ()),
        ("evaluation", "validate", (), (None,)),
        ("evaluation", "add_problem", (), ()),
        ("evaluation", "shifted_days", (), ()),
        ("twin", "fit", ("placement",), ()),
        ("offline_rl", "train", (), (None,)),
        ("offline_rl", "ppo", (), ()),
    ],
)
def test_what_is_of_another_type_is_refused_in_words(package, name, before, after, wrong):
    with pytest.raises(SchedtwinError) as refused:
        getattr(import_module(package), name)(*before, wrong, *after)
    assert refused.value.allowed


@pytest.mark.parametrize(
    "given", [(None, 1, "mix", 0), ("small", "1", "mix", 0), ("small", 1, None, 0), ("small", 1, "mix", None)]
)
def test_a_simulation_of_something_else_is_refused_by_name(tmp_path, given):
    with pytest.raises(
        ConfigError, match=r"(chosen|num_days|behaviour_name|seed) = .*\n  where: simulate\n  allowed: "
    ):
        simulate(*given, tmp_path / "log")


def test_a_progress_that_is_none_of_the_projects_is_refused_in_words():
    assert isinstance(checked_progress(None, "train"), SilentProgress)
    shown = SilentProgress()
    assert checked_progress(shown, "train") is shown
    recipe = Recipe("made", int, lambda *_: pytest.fail("begun"))
    for wrong in (True, 0, "yes", SilentProgress):
        with pytest.raises(ConfigError, match=r"(?s)progress = .*None for none"):
            train(recipe, 1, progress=wrong)


def test_paths_that_are_none_and_settings_of_another_type_are_refused(tmp_path):
    for paths in (None, "log.swf", tmp_path, 3):
        with pytest.raises(ConfigError, match=f"paths is a {type(paths).__name__}"):
            import_log("swf", paths, tmp_path / "out")
    with pytest.raises(ConfigError, match="paths is a NoneType"):
        import_log("swf", [None], tmp_path / "out")
    for config in (CertifyConfig, JudgeConfig):
        for wrong in (None, "0"):
            with pytest.raises(ConfigError, match="wrong type"):
                config(seed=wrong)


def test_a_validation_refuses_what_it_does_not_take():
    twin = PlacementTwin(*(None for _ in fields(PlacementTwin)))
    archive = Archive.__new__(Archive)
    for given, said in (
        ({"progress": True}, "progress = True"),
        ({"config": 3}, "config is a int"),
        ({"config": JudgeConfig()}, "config is a JudgeConfig"),
        ({"days": ["2024-01-01"]}, "'2024-01-01' is not a day"),
        ({"days": "2024-01-01"}, "'2024-01-01' is not a day"),
    ):
        with pytest.raises(ConfigError, match=said):
            validate(twin, archive, **given)


def test_rows_and_days_of_another_type_are_refused(tmp_path):
    for call in (cast_rows, check_rows, complete):
        for spec, rows in (
            (None, pa.table({})),
            (REQUESTS, None),
            (REQUESTS, [1]),
            ("requests", pa.table({})),
        ):
            with pytest.raises(ConfigError, match=r"(spec|rows) is a "):
                call(spec, rows)
    with ArchiveWriter(tmp_path / "log") as writer:
        writer.write(
            "nodes",
            pa.table({"node_id": ["a"], "site": ["s"], "tier": ["edge"], "cpu_cores": [1.0]}),
            source="here",
        )
    archive = Archive(tmp_path / "log")
    day = dt.datetime(2024, 1, 1)
    for days, told in (
        ("2024-01-01", "'2024-01-01'"),
        (["2024-01-01"], "'2024-01-01'"),
        (3, "3"),
        ([day], "datetime"),
    ):
        with pytest.raises(ConfigError, match=f"{told}.* is not a day"):
            archive.read("nodes", days=days)
    with pytest.raises(ConfigError, match="is not a day"):
        archive.num_rows("requests", "2024-01-01")
