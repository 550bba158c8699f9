"""A clone of the logged behaviour for the closed loop, and a line on whether it decides as the log did.

Where it does not, closed-loop results are no evidence about the system under test: lines that depend on the clone are
not applicable where the behaviour surely cannot be cloned, and cannot tell where it may be. The other lines need no
clone.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import NO_CLONE, NONE, Line, Verdict, about_zero, not_applicable, silent
from evaluation.certify.resampled import mean_of
from evaluation.certify.tested_system import CloneBehaviour, SystemUnderTest
from logs_schema.progress import Progress
from offline_rl.networks import example_in
from offline_rl.recipes.cloning import fit_clone
from offline_rl.scorer import scorer
from twin.placement.history import choices_in_log

NAME = "surprise of the clone at the logged decisions, over its own entropy"
NUM_STREAMS, HELD_OUT = 16, 0.15
"""Windows of a gradient step, and the share of all windows that decide when to stop."""


def fit_behaviour(tested: SystemUnderTest, config: CertifyConfig, progress: Progress) -> CloneBehaviour:
    """The clone of the behaviour on the training days."""
    history = choices_in_log(tested.windows, tested.encoding)
    example = example_in(history)
    network = scorer(example)
    if tested.encoding.cluster.num_nodes < 2:  # all policies decide the same
        return CloneBehaviour(network, network.init(jax.random.key(config.seed)))
    with progress.stage("clone the behaviour", total=config.clone_updates, unit="updates") as stage:
        params, _ = fit_clone(
            jax.random.key(config.seed),
            history,
            example,
            network,
            config.clone_updates,
            NUM_STREAMS,
            HELD_OUT,
            stage,
        )
    return CloneBehaviour(network, params)


def clone_line(section: str, forecast: Forecast, config: CertifyConfig) -> Line:
    """Whether the clone predicts the decisions of held-out days: if its probabilities are those of the behaviour, its
    mean negative log-likelihood of the logged decisions equals its mean entropy.

    The verdict is pass or cannot tell: a behaviour that cannot be cloned is no error of the system under test.
    """
    excess = mean_of(forecast.surprise - forecast.entropy, forecast.unit, forecast.num_units)
    line = about_zero(
        section,
        NAME,
        "nats",
        excess,
        forecast.num_units,
        config.thresholds.clone_surprise,
        config.intervals(),
        reason=f"surprise {forecast.surprise.mean():.3f}, entropy {forecast.entropy.mean():.3f} nats",
    )
    verdict = line.verdict if line.verdict is Verdict.PASS else Verdict.CANNOT_TELL
    return replace(line, verdict=verdict, chance=None)


def resting_on(clone: Line, lines: Sequence[Line]) -> list[Line]:
    """The lines that depend on the clone: as they are if it decides as the log did, *cannot tell* if it may, and else
    not applicable. A twin is not to pass because more days were needed to test it."""
    if clone.verdict is Verdict.PASS:
        return list(lines)
    limit, low = clone.limit, clone.judged.low
    if limit is not None and low is not None and low <= limit:
        return [
            line
            if silent(line)
            else replace(line, verdict=Verdict.CANNOT_TELL, judged=NONE, chance=None, reason=NO_CLONE)
            for line in lines
        ]
    return [
        not_applicable(line.section, line.name, line.reason if silent(line) else NO_CLONE) for line in lines
    ]
