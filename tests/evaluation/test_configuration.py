"""The configuration of a job: what is read, and what is refused by name."""

import datetime as dt
from contextlib import nullcontext
from pathlib import Path

import pytest

from evaluation.jobs.progress import SilentProgress
from evaluation.pipeline.run import archive_step
from evaluation.problems.configuration import RunConfig, load_config
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.mapping import one_by_one

EXAMPLES = sorted((Path(__file__).parents[2] / "evaluation" / "examples").glob("*.toml"))


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read(path: Path) -> None:
    assert load_config(path).log is not None


def test_tables_become_configs_beside_what_they_configure(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            'seed = 3\n[log]\nformat = "swf"\npaths = ["a.swf"]\norigin = 2013-01-05\n'
            "[days]\nlast_day = '2013-02-01'\nnum_days = 14\n[train]\nseeds = [7]\nkl_to_clone = 1\n",
        )
    )
    assert config.seed == 3
    assert config.log is not None
    assert config.log.paths == ("a.swf",)
    assert config.log.origin == dt.date(2013, 1, 5)
    assert config.days.last_day == dt.date(2013, 2, 1)
    assert config.train.seeds == (7,)
    assert config.train.kl_to_clone == 1.0
    assert config.shifts == RunConfig().shifts


def test_a_job_imports_with_the_capacity_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text("1 0 5 60 2 -1 -1 2 120 -1 1 1 1 -1 1 -1 -1 -1\n")
    text = '[log]\nformat = "swf"\npaths = ["a.swf"]\n'
    steps = []
    for words in (text, f'{text}capacity = ["64"]\n'):
        log = load_config(written(tmp_path, words)).log
        assert log is not None
        steps.append(archive_step(log, tmp_path))
    assert steps[0].config != steps[1].config, "another capacity makes another archive"
    (tmp_path / "out").mkdir()
    steps[1].build(tmp_path / "out", {}, SilentProgress())
    assert Archive(tmp_path / "out" / "archive").nodes()["cpu_cores"].to_pylist() == [64.0]


def test_a_job_imports_by_tasks_where_it_has_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.swf").write_text("1 0 5 60 2 -1 -1 2 120 -1 1 1 1 -1 1 -1 -1 -1\n")
    text = '[log]\nformat = "swf"\npaths = ["a.swf"]\ncapacity = ["64"]\n'
    ran: list[str] = []

    def here(task, items, name=""):
        ran.append(name)
        return one_by_one(task, items)

    monkeypatch.setattr("evaluation.pipeline.run.tasks_on", lambda *_: nullcontext(here))
    hashes = []
    for number, words in enumerate((text, f"{text}[engine]\nworkers = 2\n")):
        config = load_config(written(tmp_path, words))
        out = tmp_path / str(number)
        out.mkdir()
        archive_step(config.log, tmp_path, config.engine).build(out, {}, SilentProgress())
        assert bool(ran) == bool(number)
        hashes.append(Archive(out / "archive").content_hash)
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sed = 1", "unknown key sed"),
        ("[train]\nseed = [1]", "unknown key seed"),
        ('[train]\nseeds = "all"', "not a list"),
        ("[train]\nseeds = [1, 1]", "seeds"),
        ("seed = true", "wrong type"),
        (
            '[log]\nformat = "swf"\ncapacity = [38400]',
            r'38400 is of the wrong type\n.*capacity\n.*in quotes: "38400"',
        ),
        (
            '[log]\nformat = "swf"\ncapacity = 38400',
            r'38400 is not a list\n.*capacity\n.*such as \["38400"\]',
        ),
        ("[days]\nlast_day = 2013-02-01T00:00:00", "not a date"),
        ('[days]\nlast_day = "yesterday"', "not a date"),
        ("[days]\nlast_day = 3", "not a date"),
        ("train = 3", "not a table"),
        ('[log]\nformat = "swf"\npreset = "small"\npaths = ["a"]', "only one of them"),
        ("seed = ", "not TOML"),
        ('[shifts]\nshifts = "tomorrow"', "not a list of time shifts"),
        ('[days]\nview = "sideways"', "summary, full"),
        ('[days]\ngranularity = "rack"', "auto, node, class"),
        ("[days]\nfirst_day = 2024-03-05\nlast_day = 2024-03-01", "before the first"),
        ("[twin]\nnum_members = 0", "1 or more of num_members"),
        ("[twin]\nhidden = [32, 0]", "every width"),
        ("[twin]\nlearning_rate = -1.0", "positive learning rate"),
        ("[train]\nheld_out = 1.5", "held_out between 0 and 1"),
        ("[train]\nkl_to_clone = -0.5", "weights of 0 or more"),
        ("[twin]\nlearning_rate = nan", r"nan is no setting\n.*twin: learning_rate"),
        ("[train]\nkl_to_clone = nan", r"nan is no setting\n.*train: kl_to_clone"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.toml")
    assert "none.toml" in str(caught.value)
