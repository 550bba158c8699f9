"""Worlds as files: what is read, what is refused by name, and logs that carry the world that wrote them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.pipeline.run import archive_step
from evaluation.problems.configuration import LogConfig
from evaluation.problems.orchestration.simulating import SlotLogConfig, simulate_slots
from evaluation.reproduction.benches.truth_bench import TruthBenchConfig
from evaluation.reproduction.table2 import Table2Config
from evaluation.reproduction.table2_log import log_step
from evaluation.simulator.conditions import conditions
from evaluation.simulator.logs import simulate
from evaluation.simulator.memory import refuse_too_large
from evaluation.simulator.parts import even_load
from evaluation.simulator.pool import read_pool
from evaluation.simulator.presets import PRESETS, preset
from evaluation.simulator.truth import ground_truth
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from evaluation.simulator.world_files import chosen_world, facts_of, load_world, plain, redrawn, world_of
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from logs_schema.settings import build
from tests.evaluation.worlds import truth_of
from twin.placement.bookkeeping import PlacementConfig

EXAMPLES = sorted((Path(__file__).parents[2] / "evaluation" / "examples" / "worlds").glob("*.toml"))
TINY = 'like = "small"\nrequests_per_day = 200\nday_s = 6_900\n[run]\nkind = "exponential"\n'


def written(folder: Path, text: str, name: str = "tiny") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def carried(world: World) -> World:
    """The world after a journey through the facts of an archive."""
    return world_of(json.loads(json.dumps(facts_of(world), allow_nan=False)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_world_that_facts_carry(path: Path) -> None:
    world = load_world(path)
    assert world.name == path.stem
    assert world not in PRESETS
    assert carried(world) == world


def test_a_preset_is_carried_by_its_name_alone() -> None:
    for world in PRESETS:
        assert facts_of(world) == {"preset": world.name}
        assert world_of({"preset": world.name}) is world
        assert build(World, json.loads(json.dumps(plain(world))), "here") == world


def test_a_file_says_what_differs_from_its_preset(tmp_path: Path) -> None:
    small = preset("small")
    text = 'like = "small"\nload = 0.7\nrun = {kind = "exponential"}\n[drift]\nslowing = 0.0\n[wan]\nlatency_s = 0.3\n'
    world = load_world(written(tmp_path, text))
    assert world.name == "tiny"
    assert world.run.kind == "exponential"
    assert (world.size, world.nodes, world.seed) == (small.size, small.nodes, small.seed)
    assert (world.drift.slowing, world.drift.migration) == (0.0, small.drift.migration)
    assert (world.wan.latency_s, world.wan.noise) == (0.3, small.wan.noise)
    assert even_load(world) == pytest.approx(0.7)


@pytest.mark.parametrize("name", ["", " ", "../x", "a/b", "a\\b", ".hidden", "..", "a\nb"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, TINY)
    with pytest.raises(ConfigError, match=r"name = .*\n  where: simulated world .*\n  allowed: a letter"):
        load_world(written(tmp_path, f"name = {json.dumps(name)}\n{TINY}", "other"))
    with pytest.raises(ConfigError, match="name = "):
        world_of({"preset": name, "world": plain(load_world(path)) | {"name": name}})
    for right in ("tiny", "Straße 2", "v1.2_x", "_"):
        assert load_world(written(tmp_path, f"name = {json.dumps(right)}\n{TINY}", "right")).name == right


def test_a_world_stands_without_a_preset(tmp_path: Path) -> None:
    text = """
    sites = ["here"]
    requests_per_day = 500
    [drift]
    slowing = 0.2
    slowing_node = ["a", "b"]
    [every_node]
    site = "here"
    tier = "edge"
    cpu_cores = 2
    memory_gib = 8
    [[nodes]]
    name = "a"
    speed = 1
    [[nodes]]
    name = "b"
    speed = 0.5
    [[services]]
    name = "only"
    work_s = 10
    input_mib = 1
    memory_gib = 1
    deadline_s = 60
    """
    world = load_world(written(tmp_path, text))
    assert [(node.cpu_cores, node.speed) for node in world.nodes] == [(2, 1.0), (2, 0.5)]
    assert world.drift.slowing_nodes == ("a", "b")
    assert carried(world) == world


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("like = 3", "like"),
        ('like = "nowhere"', "nowhere"),
        ('like = "small"\nweather = "bad"', "weather"),
        ('like = "small"\n[drift]\nseasons = 1', "seasons"),
        ('like = "small"\n[run]\nkind = "exponential"\nspread = 1.0', "spread"),
        ('like = "small"\n[every_node]\ndiscipline = "lifo"', "lifo"),
        ('like = "small"\nname = "edge"', "edge"),
        ('like = "small"\nload = 1.5', "1.5"),
        ('like = "small"\n[[outages]]\nnode = "north-9"\ndays = [1]\nfrom_s = 0\nto_s = 9', "north-9"),
        ('like = "small"\n[[link_faults]]\nlink = "wan"\ndays = []\nfrom_s = 0\nto_s = 9', "no day"),
        ('like = "small"\ncloud_site = ""', "wide-cloud"),
        ('like = "small"\n[every_service]\nonly_on = ["cloud"]\nnever_on = ["cloud"]', "no node may host"),
        ('like = "small"\nload = 0.5\n[wan]\nlatency_s = inf', "finite"),
        ('like = "small"\n[drift]\nmix = -inf', r"-inf is no setting\n.*drift: mix"),
        (
            'like = "small"\n[declared]\nrounded_to_s = [1, nan, 30]',
            r"nan is no setting\n.*declared: rounded_to_s",
        ),
        ('like = "small"\nload = ' + "9" * 400, "too many digits"),
        ("sites = [", "not TOML"),
        ('sites = ["here"]', "nodes, services"),
        ('sites = ["here"]\n[every_node]\nspeed = 1', "every_node"),
        ('like = "small"\nnum_agents = 3', "num_agents"),
        ('like = "small"\nseed = -1', "seed = -1"),
        ('like = "small"\n[every_node]\ncpu_cores = 0', "every_node sets cpu_cores"),
        ('like = "small"\n[every_service]\nmemory_gib = 1000', "every_service sets memory_gib"),
    ],
)
def test_worlds_that_cannot_be_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_world(written(tmp_path, text))


def test_more_requests_than_the_machine_can_hold_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    world = load_world(written(tmp_path, 'like = "small"\nrequests_per_day = 1.5e9\n'))
    for write in (
        lambda out: simulate(world, 1, "random", 0, out),
        lambda out: simulate_slots(world, 1, SlotLogConfig(), 0, out),
    ):
        with pytest.raises(ConfigError, match="GiB of memory") as caught:
            write(tmp_path / "log")
        assert "requests_per_day" in caught.value.where
        assert not (tmp_path / "log").exists()
    refuse_too_large(world, 8, memory_bytes=2**43)
    refuse_too_large(world, 8, memory_bytes=2**30, has_own_requests=False)
    crowd = load_world(written(tmp_path, 'like = "small"\nnum_agents = 1_000_000_000\n', "crowd"))
    with pytest.raises(ConfigError, match="num_agents of 1,000,000,000"):
        simulate(crowd, 1, "random", 0, tmp_path / "log")
    for one in PRESETS:
        refuse_too_large(one, 8, memory_bytes=2**30)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone"):
        chosen_world("small", tmp_path / "gone.toml")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A log written by the command; its world's file is gone."""
    folder = tmp_path_factory.mktemp("worlds")
    file = written(folder, TINY)
    words = ["simulate", "--world", str(file), "--days", "1", "--behaviour", "random", "--no-progress"]
    assert cli.main([*words, "--out", str(folder / "log")]) == 0
    file.unlink()
    return Archive(folder / "log")


@pytest.mark.slow
def test_a_simulation_takes_the_file_itself(log: Archive, tmp_path: Path) -> None:
    file = written(tmp_path, TINY)
    simulate(file, 1, "random", 0, tmp_path / "log")
    assert Archive(tmp_path / "log").content_hash == log.content_hash
    with pytest.raises(ConfigError, match="cannot read the world"):
        simulate("none.toml", 1, "mix", 0, tmp_path / "none")


def test_the_truth_of_a_log_is_played_without_the_file(log: Archive, tmp_path: Path) -> None:
    truth = ground_truth(log.facts)
    world = world_of(truth)
    assert world == load_world(written(tmp_path, TINY))
    assert (truth["preset"], world.run.kind) == ("tiny", "exponential")
    day = truth_of(world, cluster_of(world), PlacementConfig(depth=16), 0.0)
    state = jax.jit(lambda key: day.reset(key, (2,)))(jax.random.key(0))
    assert jax.tree.leaves(state)


def test_requests_are_taken_as_they_are_from_a_log_of_the_same_world_alone(log: Archive) -> None:
    """A namesake with other parts is somebody else: requests are mapped to its services and load."""
    world = world_of(ground_truth(log.facts))
    namesake = replace(world, services=tuple(replace(one, work_s=2.0 * one.work_s) for one in world.services))
    declared = log.read("requests")["requested_run_s"].to_numpy()
    np.testing.assert_allclose(read_pool(log, world).run_s, declared)
    assert read_pool(log, namesake).run_s.mean() > 1.5 * declared.mean()


def test_a_job_simulates_the_world_beside_its_configuration(tmp_path: Path) -> None:
    written(tmp_path, TINY)
    log = build(LogConfig, {"world": "tiny.toml", "days": 1, "behaviour": "random"}, "[log]")
    step = archive_step(log, tmp_path)
    assert step.files == {"world": tmp_path / "tiny.toml"}
    (tmp_path / "out").mkdir()
    step.build(tmp_path / "out", {}, SilentProgress())
    assert Archive(tmp_path / "out" / "archive").facts["ground_truth"]["preset"] == "tiny"
    with pytest.raises(ConfigError, match="only one"):
        build(LogConfig, {"world": "tiny.toml", "preset": "small"}, "[log]")


@pytest.mark.slow
def test_the_bench_of_the_truth_takes_a_file(tmp_path: Path, monkeypatch, capsys) -> None:
    @dataclass(frozen=True)
    class TinyBench(TruthBenchConfig):
        num_seeds: int = 2
        days_per_seed: int = 1
        num_steps: int | None = 20

    TinyBench.__doc__ = TruthBenchConfig.__doc__  # which describes the options
    monkeypatch.setattr("evaluation.reproduction.benches.truth_bench.TruthBenchConfig", TinyBench)
    words = ["bench", "truth", "--world", str(written(tmp_path, TINY)), "--days", "0", "--no-reference"]
    assert cli.main([*words, "--policies", "random", "--json", "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out)["preset"] == "tiny"
    with pytest.raises(SystemExit):
        cli.main([*words, "--preset", "small"])
    assert "--preset" in capsys.readouterr().err


def test_the_main_table_learns_from_the_world_of_a_file(tmp_path: Path) -> None:
    file = str(written(tmp_path, TINY))
    assert Table2Config(world=file).simulated == load_world(Path(file))
    step = log_step(LogConfig(world=file, days=1, behaviour="random"), 50)
    assert step.files == {"world": Path(file)}
    (tmp_path / "out").mkdir()
    step.build(tmp_path / "out", {}, SilentProgress())
    archive = Archive(tmp_path / "out" / "archive")
    assert world_of(ground_truth(archive.facts)) == load_world(Path(file))
    assert len(archive.read("requests")) == 50


def test_another_draw_keeps_the_laws_and_changes_who_and_what() -> None:
    world, other = preset("edge"), chosen_world("edge", None, 1)
    assert redrawn(world, 0) == world
    assert replace(other, seed=world.seed) == world
    assert carried(other) == other
    assert Table2Config(preset="edge", seed=1).simulated == other
    first, second = conditions(world, 0), conditions(other, 0)
    assert not np.allclose(first.affinity, second.affinity)
    np.testing.assert_array_equal(first.speed, second.speed)
