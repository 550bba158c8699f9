"""What a scheduler can know about run times, as an index: what trained orders start from.

Minimising the sum of slowdowns is minimising the sum of waits weighted by `w = 1 / max(run, 10 s)`, and on one machine
the order that does so is by `w / run` (Smith 1956, "Various optimizers for single-stage production"); here by
processors too, since a job holds several. Run times are not known, so their expectations take their place, given what
was requested and how the user's finished jobs compared with their requests:

    haste  = E[10 s / max(run, 10 s) | x]          share = E[min(run, requested) / requested | x]
    index  = a log haste - b log(share x requested) - c log requested - d log processors + e days waited

The highest goes first. Both expectations are in (0, 1), so one network with two logistic outputs learns them by
cross-entropy with soft labels, from the jobs of the training days, each looked at twice: when it arrived and when it
started, since what is known of its user has grown by then. Durations count as log(1 + minutes), processors as
log(1 + number), as in the features. Without a and b the index is smallest area first (c = d) or shortest first (d = 0);
with e no job waits for ever. The exponents are Smith's (`SMITH`): those that a search in generated months found were no
better in later weeks.

The logarithm of the logistic function is taken as a line through seven of its points, off by .05 at most: so an index
is a scorer with three hidden layers to the last bit, and is trained further, exported and served as one.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from twin.contracts import Array, PyTree
from twin.descent import descend_in_batches
from twin.fitting_loop import fit_keeping_best
from twin.networks import MLP
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.remembering import Score
from twin.ordering.types import Jobs, OrderingError, Pool
from twin.ordering.users import remember

SEEN = ("requested", "user_run", "known_user", "user_ratio", "user_haste", "width")
"""Features of a job that the prediction reads: those that do not change while it waits, but for the user's news."""
TIME_UNIT_S = 60.0
HASTE_S = 10.0
HIDDEN = (16, 16)
SHARPNESS = 3.0
"""Scores are this many times the index: twice as hasty a job is preferred eight to one."""
NETWORK = MLP(HIDDEN, 2)
OPTIMIZER = optax.adamw(3e-3, weight_decay=1e-3)
NUM_SAMPLES = 30_000
TRAIN_FRACTION = 0.8
"""Share of the training days' jobs, the first ones, that a prediction learns from; the others decide when to stop."""
SMITH = np.array([1.0, 1.0, 0.0, 1.0, 0.06])
"""Exponents: expected weight over expected processor seconds, and ageing by 6 % a day."""
KNOTS = np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])
"""Where log(1 + exp(x)) is taken as it is; between them as a line, below the first as 0."""
CARRIED = ("requested", "width", "waited")
"""Features that the scorer hands on beside the prediction, none of them negative."""
SCORER_HIDDEN = (HIDDEN[0] + len(CARRIED), HIDDEN[1] + len(CARRIED), 2 * len(KNOTS) + len(CARRIED))
"""Widths of the hidden layers of a scorer that is an index."""


RunTimeSamples = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Features [SEEN, looks] and labels [2, looks] to learn from, and the same to hold out."""


class Index(NamedTuple):
    """Predictions and exponents (a, b, c, d, e)."""

    predictor: PyTree
    exponents: np.ndarray  # [5]


def some_index() -> Index:
    """An index that has learned nothing: the structure of every other."""
    return Index(NETWORK.init(jax.random.key(0), np.zeros((len(SEEN), 1), np.float32)), SMITH)


def seen_at(jobs: Jobs, start_s: np.ndarray, pool: Pool, at_s: np.ndarray) -> np.ndarray:
    """[SEEN, jobs] the features of `twin.ordering.features` as they stood for each job at some instant.

    Args:
        jobs: in order of arrival.
        start_s: [jobs] when each started: it gives which jobs had finished by then; NaN if never.
        pool: the processors.
        at_s: [jobs] the instants; none is NaN.
    """
    end_s = np.where(np.isnan(start_s), np.inf, start_s + jobs.run_s)
    ends = np.argsort(end_s, kind="stable")
    num_agents = int(jobs.agent.max()) + 1 if len(jobs.agent) else 0
    memory = np.zeros((max(num_agents, 1), 4))
    known, done = np.zeros((4, len(end_s))), 0
    for job in np.argsort(at_s, kind="stable"):
        while done < len(ends) and end_s[ends[done]] <= at_s[job]:
            ended = ends[done]
            agent = jobs.agent[ended]
            done += 1
            if agent >= 0:
                remember(memory[agent], jobs.run_s[ended], jobs.requested_s[ended], TIME_UNIT_S)
        if jobs.agent[job] >= 0:
            known[:, job] = memory[jobs.agent[job]]
    requested = np.log1p(jobs.requested_s / TIME_UNIT_S)
    width = np.log1p(jobs.processors) / np.log1p(pool.processors)
    return np.stack([requested, *_history(known), width]).astype(np.float32)


def _history(memory: np.ndarray) -> np.ndarray:
    """[4, jobs] the middle of `SEEN`, of the memories [4, jobs] of the submitting user (`remembering.Score`)."""
    count, ratio, log_run, haste = memory
    return np.stack([log_run, 1.0 - 1.0 / (1.0 + count), np.where(count > 0.0, ratio, 1.0), haste])


def labels_of(jobs: Jobs) -> np.ndarray:
    """[2, jobs] haste and share, in (0, 1]."""
    haste = HASTE_S / np.maximum(jobs.run_s, HASTE_S)
    return np.stack([haste, np.minimum(jobs.run_s / jobs.requested_s, 1.0)]).astype(np.float32)


def fit_predictor(
    seed: int,
    train: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray, np.ndarray],
    num_looks: int = 8,
) -> tuple[PyTree, np.ndarray]:
    """Learns haste and share; the parameters that the held-out jobs like best are kept.

    Args:
        seed: of parameters and batches.
        train: features [SEEN, jobs] and labels [2, jobs].
        held_out: the same of other jobs.
        num_looks: looks at the held-out jobs, each after 50 gradient steps on 1,024 jobs.

    Returns:
        Parameters, and the held-out cross-entropy [looks] in nats.
    """
    features, labels = _some_of(seed, *train)
    unseen = _some_of(seed, *held_out)
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params = jax.jit(NETWORK.init)(key_init, features[:, :1])

    def advance(state: PyTree, look: int, _: int) -> tuple[PyTree, PyTree, float]:
        state = _some_steps(jax.random.fold_in(key_steps, look), *state, features, labels)
        return state, (), float(_loss(state[0], unseen))

    start = params, OPTIMIZER.init(params)
    fit = fit_keeping_best(start, advance, num_looks, 1, kept=lambda state: state[0], last_of_equals=True)
    return fit.best, fit.losses


def _some_of(seed: int, features: np.ndarray, labels: np.ndarray) -> tuple[Array, Array]:
    """As many jobs as ever, so that the programs are compiled once."""
    rows = np.random.default_rng(seed).choice(features.shape[1], NUM_SAMPLES)
    return jnp.asarray(features[:, rows]), jnp.asarray(labels[:, rows])


@jax.jit
def _loss(params: PyTree, jobs: tuple[Array, Array]) -> Array:
    features, labels = jobs
    return jnp.mean(optax.sigmoid_binary_cross_entropy(_logits(params, features), labels))


@jax.jit
def _some_steps(
    key: Array, params: PyTree, memory: PyTree, features: Array, labels: Array
) -> tuple[PyTree, PyTree]:
    def some(key: Array) -> tuple[Array, Array]:
        rows = jax.random.randint(key, (1024,), 0, features.shape[1])
        return features[:, rows], labels[:, rows]

    keys = jax.random.split(key, 50)
    return descend_in_batches(OPTIMIZER, _loss, some, keys, params, memory)[:2]


def samples_of(jobs: Jobs, start_s: np.ndarray, span_s: tuple[float, float], pool: Pool) -> RunTimeSamples:
    """What `fit_predictor` learns from and holds out: jobs that arrived and ended within a span.

    Args:
        jobs: in order of arrival.
        start_s: [jobs] when each started; NaN if never.
        span_s: the span's beginning and end.
        pool: the processors.

    Returns:
        Features [SEEN, 2 jobs] and labels [2, 2 jobs] of the first jobs, and of the others.

    Raises:
        OrderingError: not two jobs arrived and ended.
    """
    within = np.flatnonzero((jobs.arrival_s >= span_s[0]) & (start_s + jobs.run_s < span_s[1]))
    if len(within) < 2:
        arrived = (jobs.arrival_s >= span_s[0]) & (jobs.arrival_s < span_s[1])
        no_start = bool(arrived.any()) and bool(np.isnan(start_s[arrived]).all())
        raise OrderingError(
            f"{len(within)} jobs arrived and ended on the training days"
            + (
                f": of none of the {arrived.sum():,} that arrived it is known when it started"
                if no_start
                else ""
            ),
            allowed="at least 2",
            advice="import the log with starts or waits; rules need none: schedtwin replay ARCHIVE --problem ordering"
            if no_start
            else "train on more days",
        )
    began_s = np.where(np.isnan(start_s), jobs.arrival_s, start_s)
    looks = [seen_at(jobs, start_s, pool, at_s)[:, within] for at_s in (jobs.arrival_s, began_s)]
    features = np.stack(looks, axis=-1).reshape(len(SEEN), -1)
    labels = np.repeat(labels_of(jobs)[:, within], 2, axis=1)
    cut = 2 * max(1, int(TRAIN_FRACTION * len(within)))
    return (features[:, :cut], labels[:, :cut]), (features[:, cut:], labels[:, cut:])


def score_of(index: Index, jobs: Jobs, pool: Pool) -> Score:
    """The index of jobs that have not waited, for `twin.ordering.remembering`; ageing is the replay's own.

    Args:
        index: the index.
        jobs: those that the replay will number.
        pool: the processors.
    """
    layers = [
        tuple(np.asarray(index.predictor["params"][f"Dense_{number}"][name]) for name in ("kernel", "bias"))
        for number in range(3)
    ]
    requested = np.log1p(jobs.requested_s / TIME_UNIT_S).astype(np.float32)
    width = (np.log1p(jobs.processors) / np.log1p(pool.processors)).astype(np.float32)
    a, b, c, d, _ = index.exponents

    def score(rows: np.ndarray, memory: np.ndarray) -> np.ndarray:
        hidden = np.stack([requested[rows], *_history(memory), width[rows]], axis=1).astype(np.float32)
        for kernel, bias in layers[:2]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)
        log_haste, log_share = log_logistic(hidden @ layers[2][0] + layers[2][1]).T
        log_processors = width[rows] * np.log1p(pool.processors)
        return np.asarray(a * log_haste - b * log_share - (b + c) * requested[rows] - d * log_processors)

    return score


def log_logistic(logit: np.ndarray) -> np.ndarray:
    """log(1 / (1 + exp(-logit))) as a line through its values at minus `KNOTS`."""
    rises = np.maximum(-logit[..., None] - KNOTS, 0.0)
    return np.asarray(-rises @ _bends())


def scorer_of(index: Index, pool: Pool) -> PyTree:
    """The parameters of a scorer (`SCORER_HIDDEN`, without identity, not pooled) whose scores are the index, sharpened.

    Args:
        index: the index.
        pool: the processors, in whose logarithm widths are counted.
    """
    first, second, last = (index.predictor["params"][f"Dense_{number}"] for number in range(3))
    names = [feature.name for feature in JOB_FEATURES]
    job = np.zeros((len(names), len(SEEN)), np.float32)
    job[[names.index(name) for name in SEEN], np.arange(len(SEEN))] = 1.0
    carried = np.zeros((len(names), len(CARRIED)), np.float32)
    carried[[names.index(name) for name in CARRIED], np.arange(len(CARRIED))] = 1.0
    a, b, c, d, e = index.exponents
    bends, knots = _bends(), len(KNOTS)
    each = np.zeros((2, 2 * knots), np.float32)
    each[0, :knots] = each[1, knots:] = 1.0
    out = np.concatenate([-a * bends, b * bends, [-b - c, -d * np.log1p(pool.processors), e]])
    return {
        "params": {
            "choice": _dense(
                np.concatenate([job @ np.asarray(first["kernel"]), carried], axis=1), first["bias"]
            ),
            "context": _dense(np.zeros((len(POOL_FEATURES), SCORER_HIDDEN[0])), ()),
            "layer_0": _dense(_beside(np.asarray(second["kernel"])), second["bias"]),
            "layer_1": _dense(
                _beside(-np.asarray(last["kernel"]) @ each),
                -np.asarray(last["bias"]) @ each - np.tile(KNOTS, 2),
            ),
            "score": _dense(SHARPNESS * out[:, None], ()),
        }
    }


def index_of(scorer: PyTree, pool: Pool) -> Index | None:
    """The index that `scorer_of` wrote as a scorer, to the precision of float32; None if it is another scorer.

    Args:
        scorer: parameters of a scorer with hidden layers `SCORER_HIDDEN`.
        pool: the processors.
    """
    layers = scorer["params"]
    names = [feature.name for feature in JOB_FEATURES]
    seen = [names.index(name) for name in SEEN]
    (wide, narrow), apart = HIDDEN, [0, len(KNOTS)]  # the first bends of haste and of share
    pairs = (
        (layers["choice"]["kernel"][seen, :wide], layers["choice"]["bias"][:wide]),
        (layers["layer_0"]["kernel"][:wide, :narrow], layers["layer_0"]["bias"][:narrow]),
        (-layers["layer_1"]["kernel"][:narrow, apart], -layers["layer_1"]["bias"][apart] - KNOTS[0]),
    )
    predictor = {f"Dense_{number}": {"kernel": one, "bias": two} for number, (one, two) in enumerate(pairs)}
    out = layers["score"]["kernel"][:, 0].astype(float) / SHARPNESS
    a, b = (-out[0] / _bends()[0], out[len(KNOTS)] / _bends()[0])
    requested, width, ageing = out[-len(CARRIED) :]
    exponents = np.array([a, b, -requested - b, -width / np.log1p(pool.processors), ageing])
    index = Index({"params": predictor}, exponents)
    again = scorer_of(index, pool)["params"]
    same = all(
        np.allclose(array, layers[layer][part], rtol=1e-4, atol=1e-5)
        for layer, parts in again.items()
        for part, array in parts.items()
    )
    return index if same else None


def _bends() -> np.ndarray:
    """[knots] by how much the slope of the line grows at every knot."""
    heights = np.logaddexp(0.0, KNOTS) - np.logaddexp(0.0, KNOTS[0])
    slopes = np.append(np.diff(heights) / np.diff(KNOTS), 1.0)
    return np.diff(slopes, prepend=0.0)


def _beside(kernel: np.ndarray) -> np.ndarray:
    """A kernel that also hands the carried features on."""
    inputs, outputs = kernel.shape
    whole = np.zeros((inputs + len(CARRIED), outputs + len(CARRIED)), np.float32)
    whole[:inputs, :outputs] = kernel
    whole[inputs:, outputs:] = np.eye(len(CARRIED))
    return whole


def _dense(kernel: np.ndarray, bias: object) -> dict[str, np.ndarray]:
    """An affine layer; a bias that is too short is filled up with zeros."""
    given = np.asarray(bias, np.float32)
    return {
        "kernel": np.asarray(kernel, np.float32),
        "bias": np.concatenate([given, np.zeros(kernel.shape[1] - len(given), np.float32)]),
    }


def _logits(params: PyTree, features: Array) -> Array:
    return cast(Array, NETWORK.apply(params, features))
