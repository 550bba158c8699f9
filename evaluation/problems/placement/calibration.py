"""Calibration of the twin: ranks of the outcomes of held-out days in the predicted distributions.

If a predicted distribution is right, the observed value lies below its q-quantile in a share q of the cases
(the probability integral transform is uniform). The mixture over members is what the ensemble predicts.
"""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.report import Chart, Curve
from twin.contracts import Array, PyTree
from twin.networks import apply
from twin.placement.encoding import Encoding
from twin.placement.history import Offers, as_drawn
from twin.placement.learned import AnswerConfig, AnswerModel, answer_network, answer_parameters
from twin.placement.outcome_model import Mixture, log_run, log_wait, mixture_log_survival

LEVELS = np.linspace(0.0, 1.0, 41)
MIN_ROWS = 50
RESOLUTION = 0.01
"""Resolution of the logarithmic scales: one per cent of a duration."""


def calibration_charts(
    model: AnswerModel, config: AnswerConfig, encoding: Encoding, offers: Offers, tested: str
) -> tuple[Chart, ...]:
    """Charts of predicted against observed shares, for waits, run times and acceptance.

    Args:
        model: The ensemble.
        config: Of the ensemble.
        encoding: Its encoding.
        offers: Of days the model has not seen.
        tested: Which days these are, in words.

    Returns:
        One chart for durations and, where some offers were refused, one for acceptance.
    """
    offers = as_drawn(offers, encoding.problem.time_unit_s)
    wait, run, accept = predicted_ranks(model, config, encoding, offers)
    seen = offers.observed
    taken = np.asarray(seen.accepted & ~seen.dropped)
    curves = [
        Curve(name, tuple(LEVELS), tuple(float(np.mean(rank[known] <= level)) for level in LEVELS))
        for name, rank, known in (
            ("wait", wait, taken & seen.started),
            ("run time", run, taken & seen.finished),
        )
        if known.sum() >= MIN_ROWS
    ]
    charts = []
    if curves:
        note = (
            "On the diagonal the twin's distributions are right; below it, true values are longer than foreseen. "
            f"{tested}, unseen in training."
        )
        labels = ("predicted share of values below", "observed share of values below")
        charts.append(Chart("Calibration of waits and run times", *labels, tuple(curves), note, True))
    refused = int(np.sum(~np.asarray(seen.accepted)))
    if refused >= MIN_ROWS:
        charts.append(_acceptance(accept, np.asarray(seen.accepted), tested))
    return tuple(charts)


def predicted_ranks(
    model: AnswerModel, config: AnswerConfig, encoding: Encoding, offers: Offers
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[rows] rank of the true wait and run time in the predicted distributions, and probability of acceptance.

    Values within `RESOLUTION` of each other count as equal, and ranks among equals are drawn evenly: a wait
    that can be computed to the millisecond is not foreseen badly by a distribution that is a second wide.
    """
    network, unit_s = answer_network(config), encoding.problem.time_unit_s

    def distribution(mixture: Mixture, value: Array) -> Array:
        below, above = jnp.maximum(value - RESOLUTION, 0.0), value + RESOLUTION
        return 1.0 - jnp.exp(jnp.stack([mixture_log_survival(mixture, end) for end in (below, above)]))

    def member(parameters: PyTree, inputs: Array, wait_s: Array, run_s: Array) -> tuple[Array, Array, Array]:
        predicted = answer_parameters(apply(network, parameters, inputs), inputs, encoding)
        at_once = jax.nn.sigmoid(predicted.zero_wait_logit)[None]
        wait = at_once + (1.0 - at_once) * distribution(predicted.wait, log_wait(wait_s, unit_s))
        none = jnp.concatenate([jnp.zeros_like(at_once), at_once])
        run = distribution(predicted.run, log_run(run_s, unit_s))
        return jnp.where((wait_s <= 0.0)[None], none, wait), run, jax.nn.sigmoid(predicted.accept_logit)

    every = jax.jit(jax.vmap(member, in_axes=(0, None, None, None)))
    parts = every(model.parameters, offers.inputs, offers.observed.wait_s, offers.observed.run_s)
    wait, run, accept = (np.asarray(part).mean(axis=0) for part in parts)
    even = np.random.default_rng(0).random((2, accept.shape[0]))
    wait, run = (low + share * (high - low) for (low, high), share in zip((wait, run), even, strict=True))
    return wait, run, accept


def _acceptance(predicted: np.ndarray, accepted: np.ndarray, tested: str) -> Chart:
    order = np.argsort(predicted, kind="stable")
    groups = np.array_split(order, 10)
    curve = Curve(
        "offers",
        tuple(float(predicted[group].mean()) for group in groups),
        tuple(float(accepted[group].mean()) for group in groups),
    )
    note = f"Offers in ten groups of equal size, by predicted probability. {tested}, unseen in training."
    labels = ("predicted probability of acceptance", "observed share accepted")
    return Chart("Calibration of acceptance", *labels, (curve,), note, True)
