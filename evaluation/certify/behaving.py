"""A clone of the logged behaviour, to play the system under test in closed loop; does it decide as the log did?

Where it does not, what comes of it in closed loop says nothing of the system, and lines that rest on it do not apply;
the other lines need no clone.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from evaluation.certify.believed import Believed, CloneBehaviour
from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, Verdict, about_zero, not_applicable, silent
from evaluation.certify.resampled import mean_of
from logs_schema.progress import Progress
from offline_rl.networks import example_in
from offline_rl.recipes.cloning import fit_clone
from offline_rl.scorer import scorer
from twin.placement.history import replay_log

NAME = "surprise of the clone at the logged decisions, over its own entropy"
EXCUSE = "the clone is not shown to decide as the log did, so that closed loop says nothing of the twin"
NUM_STREAMS, HELD_OUT = 16, 0.15


def fit_behaviour(believed: Believed, config: CertifyConfig, progress: Progress) -> CloneBehaviour:
    """The clone of the behaviour on the training days."""
    history = replay_log(believed.windows, believed.encoding)
    example = example_in(history)
    network = scorer(example)
    if believed.encoding.cluster.num_nodes < 2:  # whoever decides, decides alike
        return CloneBehaviour(network, network.init(jax.random.key(config.seed)))
    with progress.stage("clone the behaviour", total=config.clone_updates, unit="updates") as stage:
        params, _ = fit_clone(
            jax.random.key(config.seed), history, example, network, config.clone_updates, NUM_STREAMS,
            HELD_OUT, stage,
        )  # fmt: skip
    return CloneBehaviour(network, params)


def clone_line(section: str, told: Forecast, config: CertifyConfig) -> Line:
    """Whether the clone predicts the decisions of held-out days: if its probabilities are the behaviour's own, the
    mean of minus their logarithm at the logged decisions is its mean entropy.

    It passes or cannot tell: a log whose behaviour cannot be cloned is no fault of the system under test.
    """
    line = about_zero(
        section, NAME, "nats", mean_of(told.surprise - told.entropy, told.unit, told.num_units), told.num_units,
        config.thresholds.clone_surprise, config.intervals(),
        reason=f"surprise {told.surprise.mean():.3f}, entropy {told.entropy.mean():.3f} nats",
    )  # fmt: skip
    verdict = line.verdict if line.verdict is Verdict.PASS else Verdict.CANNOT_TELL
    return replace(line, verdict=verdict, chance=None)


def resting_on(clone: Line, lines: Sequence[Line]) -> list[Line]:
    """The lines that rest on the clone; none applies unless it decides as the log did."""
    if clone.verdict is Verdict.PASS:
        return list(lines)
    return [
        not_applicable(line.section, line.name, line.reason if silent(line) else EXCUSE) for line in lines
    ]
