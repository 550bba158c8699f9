"""Made logs of agents that await their answers, and of others, and how such requests are answered."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Environment, Trajectory
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.responses import Answers
from twin.placement.types import COMPLETED, REJECTED, Fate
from twin.placement.windows import Windows
from twin.rollout import rollout

NUM_AGENTS, NUM_STEPS = 4, 40


def log_of(rng: np.random.Generator, kind: str, num_agents: int = 20, per_agent: int = 150):
    """Arrivals, ends, statuses and agents of requests whose response times scatter around 10 s."""
    rows = []
    for agent in range(num_agents):
        now_s, ended_s = rng.uniform(0.0, 50.0), 0.0
        for _ in range(per_agent):
            ended_s = now_s + rng.lognormal(2.0, 0.7)
            rows.append((now_s, ended_s, COMPLETED, agent))
            if kind == "awaiting":
                now_s = ended_s + rng.exponential(10.0)
            elif kind == "open":
                now_s += rng.exponential(20.0)
            elif kind == "timer":
                now_s += 120.0 + rng.uniform(0.0, 5.0)
    rows.sort()
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def logged(seed: int, num_windows: int = 2) -> tuple[Encoding, Windows]:
    """Windows of agents that think, but for some requests that overlap the one before, and some that are refused."""
    rng = np.random.default_rng(seed)
    cluster = replace(made_cluster(), awaits=True)
    encoding, num = made_encoding(cluster), NUM_STEPS * num_windows
    rows = []
    for agent in range(NUM_AGENTS):
        now_s = rng.uniform(0.0, 20.0)
        while now_s < 1e5:
            refused = rng.random() < 0.1
            ended_s = now_s if refused else now_s + rng.exponential(20.0)
            rows.append((now_s, ended_s, REJECTED if refused else COMPLETED, agent))
            overlaps = rng.random() < 0.1 and not refused
            now_s = now_s + 0.5 * (ended_s - now_s) if overlaps else ended_s + rng.exponential(15.0)
    arrival_s, finish_s, status, agent = (
        np.array(column) for column in zip(*sorted(rows)[:num], strict=True)
    )
    finish_s = np.where(status == REJECTED, np.inf, finish_s)
    made = made_rows(rng, cluster, num)
    made = made._replace(
        arrival_s=arrival_s, start_s=np.where(status == REJECTED, np.inf, arrival_s), finish_s=finish_s,
        status=status.astype(np.int32), node=np.zeros(num, np.int32),
        request=made.request._replace(agent=agent.astype(np.int32), deadline_s=np.arange(num, dtype=np.float32)),
    )  # fmt: skip
    return encoding, cut_windows(made, np.ones(num, bool), encoding, num_steps=NUM_STEPS)


def run_of(number):
    """How long a request runs in the episode, whatever the log says; of arrays too."""
    return 3.0 + (number * 37.0) % 41.0


def is_refused(number):
    """Whether it is refused there."""
    return number % 7.0 == 3.0


def answering() -> Answers:
    def answer(_key, memory, state, node, _pending):
        now_s, number = jnp.broadcast_to(state.clock_s[None], node.shape), state.request.deadline_s
        taken = ~is_refused(number)
        status = jnp.where(taken, COMPLETED, REJECTED).astype(jnp.int32)
        return memory, Fate(taken, now_s, now_s + run_of(number), status)

    return Answers(lambda _key, _streams: (), answer)


def first_legal(_key, _seen, legal):
    return jnp.argmax(legal, 0)


def first_legal_played(system: Environment, num_steps: int, width: int) -> Trajectory:
    """An episode of `width` streams in which the first legal node is taken, compiled as a whole."""
    return jax.jit(lambda key: rollout(key, system, first_legal, num_steps, (width,)))(jax.random.key(0))
