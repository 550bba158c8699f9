"""How the cost of a slot grows with nodes and with environments, and a plot of it.

The exponent `a` of `time ~ size^a` is fitted by least squares in logarithms: 1 is linear, below 1 better. What is timed
is a run of the random policy with observations and masks built, compiled beforehand; the least of several runs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines.baseline import best_legal
from evaluation.simulator.slots import SlotConfig, slot_environment, time_scaled
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.progress import Stage, unseen
from twin.contracts import Array, Environment, EnvironmentState


@dataclass(frozen=True)
class ScalingConfig:
    """What to measure.

    Attributes:
        node_factors: Multiples of the world's number of nodes.
        environments: Numbers of parallel environments; the first is used while nodes vary.
        num_slots: Slots in a timed run.
        repetitions: Timed runs, the least of which counts.
    """

    node_factors: tuple[int, ...] = (1, 2, 4)
    environments: tuple[int, ...] = (64, 256, 1024)
    num_slots: int = 20
    repetitions: int = 3


class Point(NamedTuple):
    """One measurement."""

    num_nodes: int
    num_environments: int
    slot_s: float  # seconds of wall time for a slot of all environments


class ScalingCurve(NamedTuple):
    """What was measured and the fitted exponents."""

    preset: str
    by_nodes: tuple[Point, ...]
    by_environments: tuple[Point, ...]
    node_exponent: float
    environment_exponent: float


def measure_scaling(world: World, config: ScalingConfig, progress: Stage = unseen) -> ScalingCurve:
    """Measures the cost of a slot.

    Args:
        world: Any world; it is scaled in time to the pace of slots.
        config: What to measure.
        progress: Called with the number of points done and what the last one was.

    Raises:
        ConfigError: a size is not positive, or there are fewer than two of a kind.
    """
    _validate(config)
    done: list[Point] = []

    def point(factor: int, num_environments: int) -> Point:
        measured = _time(widened(world, factor), num_environments, config)
        done.append(measured)
        progress(len(done), text=f"{measured.num_nodes} nodes, {num_environments} environments")
        return measured

    few = config.environments[0]
    by_nodes = tuple(point(factor, few) for factor in config.node_factors)
    by_environments = tuple(point(config.node_factors[0], number) for number in config.environments)
    return ScalingCurve(
        world.name,
        by_nodes,
        by_environments,
        exponent([one.num_nodes for one in by_nodes], [one.slot_s for one in by_nodes]),
        exponent([one.num_environments for one in by_environments], [one.slot_s for one in by_environments]),
    )


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The least-squares slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def widened(world: World, factor: int) -> World:
    """The world with every node `factor` times."""
    nodes = tuple(
        replace(node, name=node.name if copy == 0 else f"{node.name}-copy-{copy}")
        for copy in range(factor)
        for node in world.nodes
    )
    return replace(world, nodes=nodes)


def _validate(config: ScalingConfig) -> None:
    for name in ("node_factors", "environments"):
        sizes = getattr(config, name)
        if len(set(sizes)) < 2 or min(sizes) < 1:
            raise ConfigError(
                f"{name} are {', '.join(str(size) for size in sizes) or 'none'}",
                where=f"ScalingConfig.{name}",
                allowed="at least two different whole numbers, each at least 1",
                advice="name more sizes",
            )


def _time(world: World, num_environments: int, config: ScalingConfig) -> Point:
    slots = SlotConfig()
    run = _runner(slot_environment(time_scaled(world, slots), slots), num_environments, config.num_slots)
    key, times = jax.random.key(0), []
    jax.block_until_ready(run(key))
    for _ in range(config.repetitions):
        begun = time.perf_counter()
        jax.block_until_ready(run(key))
        times.append(time.perf_counter() - begun)
    return Point(len(world.nodes), num_environments, min(times) / config.num_slots)


def _runner(
    system: Environment, num_environments: int, num_slots: int
) -> Callable[[Array], EnvironmentState]:
    problem = system.problem

    def slot(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
        key_policy, key_response = jax.random.split(key)
        seen = problem.observe(state.problem), problem.legal(state.problem)
        # Built even though the policy looks at the mask only
        observation, legal = jax.lax.optimization_barrier(seen)
        choice = best_legal(jax.random.uniform(key_policy, legal.shape), legal)
        choice = jnp.where(observation.node[0, 0] < jnp.inf, choice, 0)
        return system.step(key_response, state, choice)[0], None

    def run(key: Array) -> EnvironmentState:
        state = system.reset(key, (num_environments,))
        return jax.lax.scan(slot, state, jax.random.split(key, num_slots))[0]

    return jax.jit(run)


def as_json(scaling: ScalingCurve) -> dict[str, Any]:
    """The measurements, as plain data."""
    return {
        "preset": scaling.preset,
        "by_nodes": [point._asdict() for point in scaling.by_nodes],
        "by_environments": [point._asdict() for point in scaling.by_environments],
        "node_exponent": scaling.node_exponent,
        "environment_exponent": scaling.environment_exponent,
    }


def as_text(scaling: ScalingCurve) -> str:
    """The measurements, as a person reads them."""
    lines = [f"{'nodes':>8} {'environments':>13} {'ms a slot':>10}"]
    lines += [
        f"{one.num_nodes:8d} {one.num_environments:13d} {1e3 * one.slot_s:10.2f}"
        for one in (*scaling.by_nodes, *scaling.by_environments)
    ]
    lines.append(
        f"time grows with nodes as size^{scaling.node_exponent:.2f},"
        f" with environments as size^{scaling.environment_exponent:.2f} (1 is linear)"
    )
    return "\n".join(lines)


def plot_scaling(scaling: ScalingCurve, path: Path) -> None:
    """Writes the plot: time over size, both logarithmic, with a linear line through the first point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.5), layout="constrained")
    panels = (
        ("nodes", [one.num_nodes for one in scaling.by_nodes], scaling.by_nodes, scaling.node_exponent),
        (
            "environments",
            [one.num_environments for one in scaling.by_environments],
            scaling.by_environments,
            scaling.environment_exponent,
        ),
    )
    for axes, (name, sizes, points, slope) in zip(figure.subplots(1, 2), panels, strict=True):
        times_ms = [1e3 * one.slot_s for one in points]
        axes.loglog(sizes, times_ms, "o-", label=f"measured, size^{slope:.2f}")
        axes.loglog(sizes, [times_ms[0] * size / sizes[0] for size in sizes], "--", label="linear")
        axes.set(xlabel=name, ylabel="ms a slot", title=f"{scaling.preset}: cost of a slot")
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.minorticks_off()
        axes.legend()
    figure.savefig(path)
