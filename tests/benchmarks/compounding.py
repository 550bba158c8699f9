"""How fast the errors of a twin compound, by the way its answers were learned.

Every method learns from the same logged windows and then simulates other logged windows on its own, along the logged
decisions. After 1, 5, 20, ... decisions the states of all windows are two samples, the method's and the log's; their
distance is `twin.imitation.fidelity.state_distance`. The floor is the same distance between the log and another real
log (other days, or another history of the same simulated world).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from evaluation.certify.horizons import growth_exponent
from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.seeds import over_seeds
from logs_schema.errors import ConfigError
from tests.benchmarks.black_box import black_box_states, fit_black_box
from twin.contracts import Array
from twin.imitation.config import GameConfig, ImitationConfig
from twin.imitation.decisions import logged_decisions
from twin.imitation.fidelity import STATES, repeated, state_distance, states_along_log
from twin.imitation.generator import imitated_answers
from twin.imitation.refining import refined
from twin.imitation.training import ImitationModel, fit_imitation
from twin.placement.encoding import Encoding
from twin.placement.fit import fit_answers
from twin.placement.history import labelled_offers
from twin.placement.learned import AnswerConfig, AnswerModel, learned_answers
from twin.placement.windows import Windows, select

HORIZONS = (1, 5, 20, 50, 100, 400)
FLOOR = "another real log"


class Simulates(Protocol):
    """A method: learns from `train`, gives states [horizons, state features, nodes, m * W] along `test`."""

    def __call__(
        self, key: Array, train: Windows, test: Windows, encoding: Encoding, horizons: Sequence[int]
    ) -> np.ndarray:
        """Fits and plays."""
        ...


class MethodErrors(NamedTuple):
    """One method's distances."""

    name: str
    distance: np.ndarray  # [seeds, horizons], deviations
    note: str = ""


def imitated(config: ImitationConfig) -> Simulates:
    """Answers as `fit_imitation` learns them, and how the fit ended."""

    def simulate(
        key: Array, train: Windows, test: Windows, encoding: Encoding, horizons: Sequence[int]
    ) -> np.ndarray:
        key_fit, key_play = jax.random.split(key)
        model, _ = fit_imitation(key_fit, train, encoding, config)

        @jax.jit
        def play(key: Array, model: ImitationModel, windows: Windows) -> Array:
            answers = imitated_answers(encoding, config, model.generator.answers, model.limits)
            return states_along_log(key, encoding, answers, windows, horizons)

        return np.asarray(play(key_play, model, repeated(test, config.num_members)))

    return simulate


def ensemble(config: AnswerConfig) -> Simulates:
    """The default twin: the ensemble of one-step likelihood models."""

    def simulate(
        key: Array, train: Windows, test: Windows, encoding: Encoding, horizons: Sequence[int]
    ) -> np.ndarray:
        key_fit, key_play = jax.random.split(key)
        model, _ = fit_answers(key_fit, labelled_offers(train, encoding), encoding, config)
        return _ensemble_states(key_play, model, test, encoding, config, horizons)

    return simulate


def refined_ensemble(config: AnswerConfig, game: GameConfig) -> Simulates:
    """The ensemble after an adversarial game, as configured in `[imitation]`."""

    def simulate(
        key: Array, train: Windows, test: Windows, encoding: Encoding, horizons: Sequence[int]
    ) -> np.ndarray:
        key_fit, key_play = jax.random.split(key)
        model, report = fit_answers(key_fit, labelled_offers(train, encoding), encoding, config)
        played = refined(key_fit, model, report, train, encoding, config, game)
        return _ensemble_states(key_play, played.model, test, encoding, config, horizons)

    return simulate


def _ensemble_states(
    key: Array,
    model: AnswerModel,
    test: Windows,
    encoding: Encoding,
    config: AnswerConfig,
    horizons: Sequence[int],
) -> np.ndarray:
    @jax.jit
    def play(key: Array, windows: Windows, model: AnswerModel) -> Array:
        return states_along_log(key, encoding, learned_answers(encoding, config, model), windows, horizons)

    return np.asarray(play(key, repeated(test, config.num_members), model))


def black_box(*, num_steps: int = 1000) -> Simulates:
    """A network that predicts the next state."""

    def simulate(
        key: Array, train: Windows, test: Windows, encoding: Encoding, horizons: Sequence[int]
    ) -> np.ndarray:
        key_fit, key_play = jax.random.split(key)
        model = fit_black_box(key_fit, train, encoding, num_steps=num_steps)
        return black_box_states(key_play, model, test, encoding, tuple(horizons))

    return simulate


def logged_states(windows: Windows, encoding: Encoding, horizons: Sequence[int]) -> np.ndarray:
    """States [horizons, state features, nodes, W] of the log itself."""
    node = logged_decisions(windows, encoding).full.node[STATES]
    return np.moveaxis(node[:, :, list(horizons)], 2, 0)


def compounding(
    methods: dict[str, Simulates],
    train: Windows,
    test: Windows,
    other: Windows,
    encoding: Encoding,
    *,
    horizons: Sequence[int] = HORIZONS,
    seed: int = 0,
) -> list[MethodErrors]:
    """Distances of every method and of the floor.

    Args:
        methods: What to compare, by name.
        train: Training windows.
        test: Test windows, one step longer than the largest horizon; shorter ones are left out.
        other: Windows of another real log, for the floor.
        encoding: What they mean.
        horizons: Decisions after which to look.
        seed: Of the fits and replications; `together` joins what several seeds gave.

    Returns:
        The floor first; one seed each.

    Raises:
        ConfigError: No window reaches the largest horizon.
    """
    test, other = (_long_enough(windows, max(horizons)) for windows in (test, other))
    count = min(test.num_windows, other.num_windows)
    test, other = (select(windows, np.arange(count)) for windows in (test, other))
    real, partner = (logged_states(windows, encoding, horizons) for windows in (test, other))

    def distances(states: np.ndarray) -> list[float]:
        return [state_distance(one, two) for one, two in zip(real, states, strict=True)]

    found = [MethodErrors(FLOOR, np.array([distances(partner)]))]
    key = jax.random.fold_in(jax.random.key(7), seed)
    for name, simulate in methods.items():
        found.append(
            MethodErrors(name, np.array([distances(simulate(key, train, test, encoding, horizons))]))
        )
    return found


def together(seeds: Sequence[Sequence[MethodErrors]]) -> list[MethodErrors]:
    """What several seeds gave for the same methods in the same order, as one."""
    return [
        MethodErrors(some[0].name, np.concatenate([one.distance for one in some]))
        for some in zip(*seeds, strict=True)
    ]


def _long_enough(windows: Windows, horizon: int) -> Windows:
    reaches = np.flatnonzero(windows.length > horizon)
    if not len(reaches):
        raise ConfigError(
            f"no window is longer than {horizon} decisions",
            where=f"{windows.num_windows} windows",
            allowed=f"horizons below {int(windows.length.max())}",
            advice="cut longer windows",
        )
    return select(windows, reaches)


def as_table(found: Sequence[MethodErrors], horizons: Sequence[int]) -> str:
    """Means over seeds, their standard errors where there are several, and growth exponents, as lines of text."""
    head = f"{'model of the answers':34s}" + "".join(f"{horizon:>14d}" for horizon in horizons) + "  growth"
    lines = [head]
    for one in found:
        mean, count = one.distance.mean(axis=0), len(one.distance)
        error = one.distance.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else None
        cells = [
            f"{value:.3f}" + ("" if error is None else f" ±{error[i]:.3f}") for i, value in enumerate(mean)
        ]
        growth = growth_exponent(horizons, mean)
        lines.append(f"{one.name:34s}" + "".join(f"{cell:>14s}" for cell in cells) + f"{growth:8.2f}")
    return "\n".join(lines)


def as_ratios(found: Sequence[MethodErrors], horizons: Sequence[int], default: str, at: int) -> str:
    """Distances after `at` decisions and their ratios to those of `default`, paired by seed, as lines of text.

    Both are means over seeds with Student's 95 % interval (`over_seeds`).
    """
    column = list(horizons).index(at)
    of_default = next(one.distance[:, column] for one in found if one.name == default)
    lines = [f"{f'after {at} decisions':34s}{'distance':>24s}{f'ratio to {default}':>28s}"]
    for one in found:
        distance = one.distance[:, column]
        cells = [_in_words(over_seeds(values.tolist())) for values in (distance, distance / of_default)]
        lines.append(f"{one.name:34s}{cells[0]:>24s}{cells[1]:>28s}")
    return "\n".join(lines)


def _in_words(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-" if estimate.value is None else f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
