"""GAN-SMMSG and its relatives: one generator, one adversary, one loss (Xiong et al., equations 3 and 4, algorithm 1).

The generator minimises

    adversary * generator_loss(D(G(z))) - entropy * H(V(G(z)))
        + columns * KL(V(x) || V(G(z)))  + pairs * (the same of pairs of columns)  + rows * (the same of whole rows)

where `V` takes the distribution of a batch's values. Equation 4 is `adversary = 1`, `entropy = alpha`,
`columns = beta`; a KL of columns alone leaves the joint wrong, so pairs and whole rows are offered beside it. That of
whole rows needs a generator with a likelihood (`chained`). The adversary gets an agent with its conditions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree
from twin.descent import descend
from twin.networks import MLP, apply
from twin.population import codes
from twin.population.adversaries import Adversary
from twin.population.encoding import AgentEncoding, near_share
from twin.population.fidelity import Reference
from twin.population.generators import AgentGenerator, at_once, in_chain
from twin.population.population import Population, Training
from twin.population.training import Search, SearchConfig, train


@dataclass(frozen=True)
class AdversarialConfig:
    """Of the networks, the loss and the search.

    Attributes:
        adversary, entropy, columns, pairs, rows: Weights of the terms of the generator's loss.
        chained: Columns one after the other instead of all at once.
        generator_steps, discriminator_steps: Of each side in one round; no adversary is trained with 0 of the latter.
        hidden: Widths of the generator (of every column's head where chained).
        discriminator_hidden: Widths of the adversary.
        noise: Noise features of a generator that is not chained.
        temperature: Of the Gumbel draws.
        learning_rate, discriminator_rate: Of Adam (second one: the adversary's).
        averaging: Weight of the past in the average of the generator's parameters that samples are taken with.
        batch_size: Rows of a step.
        search: Length, evaluations and patience.
    """

    adversary: float = 1.0
    entropy: float = 0.0
    columns: float = 0.0
    pairs: float = 0.0
    rows: float = 0.0
    chained: bool = False
    generator_steps: int = 1
    discriminator_steps: int = 1
    hidden: tuple[int, ...] = (128, 128)
    discriminator_hidden: tuple[int, ...] = (128, 128)
    noise: int = 32
    temperature: float = 0.5
    learning_rate: float = 1e-3
    discriminator_rate: float = 1e-3
    averaging: float = 0.99
    batch_size: int = 256
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        weights = (self.adversary, self.entropy, self.columns, self.pairs, self.rows)
        if min(weights) < 0.0 or max(weights) == 0.0:
            raise ConfigError(
                f"weights {weights} of the generator's loss",
                where="adversary, entropy, columns, pairs, rows",
                allowed="none below 0, one above 0",
            )
        if self.rows > 0.0 and not self.chained:
            raise ConfigError(
                "a KL of whole rows without a likelihood",
                where="rows",
                allowed="0, or any weight with chained=True",
                advice="set chained=True",
            )
        if self.adversary > 0.0 and self.discriminator_steps < 1:
            raise ConfigError(
                "an adversary that is never trained",
                where="discriminator_steps",
                allowed="1 or more",
                advice="set adversary = 0 to do without",
            )

    @property
    def draws(self) -> bool:
        """Whether the generator's loss looks at generated rows; the KL of whole rows does not."""
        return max(self.adversary, self.entropy, self.columns, self.pairs) > 0.0


class GANState(NamedTuple):
    """The state of training between steps."""

    generator: PyTree
    average: PyTree
    discriminator: PyTree
    generator_optimiser: PyTree
    discriminator_optimiser: PyTree


class GANMetrics(NamedTuple):
    """Metrics of a round; scalars."""

    generator_loss: Array
    discriminator_loss: Array
    accuracy: Array  # share of pairs (real, generated) that the adversary orders rightly; 0.5 where it cannot
    kl: Array  # of pairs of columns, within the batch
    entropy: Array


class AdversarialData(NamedTuple):
    """The training rows as arguments of the program."""

    rows: Array  # [width, agents]
    conditions: Array  # [conditions, agents]
    tables: Any  # `codes.Tables` of theirs; None where the loss does not look at them
    blur: Array  # [agents] width, in days, within which its time of day is moved: so no hour is memorised


def adversarial(name: str, config: AdversarialConfig, adversary: Adversary) -> Population:
    """A population trained against `adversary`."""

    def fit(key: Array, encoding: AgentEncoding, training: Training) -> tuple[PyTree, dict[str, Any]]:
        key_split, key_train = jax.random.split(key)
        kept, aside = _split(key_split, training.unit, config.search.held_out)
        reference = Reference.of(encoding, training.rows[:, aside], training.conditions[:, aside])
        rows = jnp.asarray(training.rows[:, kept])
        tables = jax.jit(lambda rows: codes.tables(encoding.blocks, rows))(rows) if config.draws else None
        blur = _blur(encoding, training.conditions)
        data = AdversarialData(
            rows, jnp.asarray(training.conditions[:, kept]), tables, jnp.asarray(blur[kept])
        )
        generator = _generator(encoding, config)
        draw = _draw(encoding, config)
        search = Search(
            init=_init(encoding, config, generator),
            round=_round(encoding, config, generator, adversary),
            chosen=lambda state: state.average,
            judge=lambda key, parameters: reference.judge(
                key, lambda k, given: draw(k, parameters, jnp.asarray(given))
            ),
        )
        best, record = train(
            key_train, search, data, config.search, training.on_evaluation, training.checkpoint
        )
        if generator.settle is not None:
            best = jax.tree.map(
                np.asarray,
                generator.settle(best, jnp.asarray(training.rows), jnp.asarray(training.conditions)),
            )
        return best, record

    def sample(key: Array, encoding: AgentEncoding, parameters: PyTree, conditions: np.ndarray) -> np.ndarray:
        num_rows = conditions.shape[1]
        room = 1 << max(0, num_rows - 1).bit_length()  # few shapes, few programs
        padded = jnp.asarray(conditions[:, np.arange(room) % max(num_rows, 1)])
        drawn = _draw(encoding, config)(key, parameters, padded)
        return np.asarray(drawn)[:, :num_rows]

    def structure(encoding: AgentEncoding) -> PyTree:
        return jax.eval_shape(_generator(encoding, config).init, jax.random.key(0))

    return Population(name, config, fit, sample, structure)


def _generator(encoding: AgentEncoding, config: AdversarialConfig) -> AgentGenerator:
    if config.chained:
        return in_chain(encoding, config.hidden, config.temperature)
    return at_once(encoding, config.hidden, config.noise, config.temperature)


@lru_cache(maxsize=8)
def _draw(encoding: AgentEncoding, config: AdversarialConfig) -> Callable[[Array, PyTree, Array], Array]:
    """(key, parameters, conditions) -> agents [width, rows]; compiled once for each number of rows."""
    generator = _generator(encoding, config)
    return jax.jit(lambda key, parameters, conditions: generator.generate(parameters, key, conditions).hard)


def _split(key: Array, unit: np.ndarray, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows of a share of the units set aside; no unit has rows in both."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    names = np.unique(unit)
    if len(names) < 2:  # no agent to set aside as a whole
        names = unit = np.arange(len(unit))
    units = np.random.default_rng(words).permutation(names)
    is_aside = np.isin(unit, units[: max(1, round(held_out * len(units)))])
    return np.flatnonzero(~is_aside), np.flatnonzero(is_aside)


def _blur(encoding: AgentEncoding, conditions: np.ndarray) -> np.ndarray:
    """[agents] `near_share` of the rows of each one's scenario."""
    scenario = encoding.scenario_codes(conditions)
    share = np.array([near_share(int(count)) for count in np.bincount(scenario)])
    return share[scenario].astype(np.float32)


def _discriminator(config: AdversarialConfig) -> MLP:
    return MLP(tuple(config.discriminator_hidden), 1)


def _optimisers(config: AdversarialConfig) -> tuple[optax.GradientTransformation, ...]:
    return tuple(
        optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate, b1=0.5, b2=0.99))
        for rate in (config.learning_rate, config.discriminator_rate)
    )


def _init(encoding: AgentEncoding, config: AdversarialConfig, generator: AgentGenerator) -> Any:
    discriminator, (generator_adam, discriminator_adam) = _discriminator(config), _optimisers(config)

    def init(key: Array) -> GANState:
        keys = jax.random.split(key)
        of_generator = generator.init(keys[0])
        inputs = jnp.zeros((encoding.width + encoding.num_conditions, 1))
        of_discriminator = discriminator.init(keys[1], inputs)
        return GANState(
            of_generator,
            of_generator,
            of_discriminator,
            generator_adam.init(of_generator),
            discriminator_adam.init(of_discriminator),
        )

    return init


def _batch(encoding: AgentEncoding, size: int, key: Array, data: AdversarialData) -> tuple[Array, Array]:
    """Rows [width, size] and conditions [conditions, size], drawn with replacement, their time of day moved."""
    key_rows, key_blur = jax.random.split(key)
    chosen = jax.random.randint(key_rows, (size,), 0, data.rows.shape[1])
    moved = data.blur[chosen] * (jax.random.uniform(key_blur, (size,)) - 0.5)
    return data.rows[:, chosen], encoding.turned(data.conditions[:, chosen], moved)


def _round(
    encoding: AgentEncoding, config: AdversarialConfig, generator: AgentGenerator, adversary: Adversary
) -> Any:
    """(key, state, data) -> state, metrics: the steps of both sides (algorithm 1)."""
    discriminator, (generator_adam, discriminator_adam) = _discriminator(config), _optimisers(config)
    blocks, pair_share = encoding.blocks, codes.pair_share(encoding)

    batch = partial(_batch, encoding, config.batch_size)

    def score(parameters: PyTree, rows: Array, conditions: Array) -> Array:
        return apply(discriminator, parameters, jnp.concatenate([rows, conditions]))[0]

    def drawn_loss(
        parameters: PyTree, key: Array, conditions: Array, state: GANState, data: AdversarialData
    ) -> tuple[Array, Array, Array]:
        """The terms that look at generated rows, their KL of pairs and their entropy."""
        drawn = generator.generate(parameters, key, conditions)
        tables = codes.tables(blocks, drawn.soft)
        kl = codes.pairwise_kl(pair_share, data.tables, tables)
        entropy = codes.marginal_entropy(len(blocks), tables)
        loss = config.adversary * adversary.generator_loss(score(state.discriminator, drawn.hard, conditions))
        loss += config.columns * codes.marginal_kl(len(blocks), data.tables, tables) + config.pairs * kl
        return loss - config.entropy * entropy, kl, entropy

    def generator_loss(
        parameters: PyTree, key: Array, state: GANState, data: AdversarialData
    ) -> tuple[Array, tuple]:
        key_batch, key_draw = jax.random.split(key)
        rows, conditions = batch(key_batch, data)
        loss = kl = entropy = jnp.zeros(())
        if config.draws:
            loss, kl, entropy = drawn_loss(parameters, key_draw, conditions, state, data)
        if generator.log_likelihood is not None:
            loss -= config.rows * jnp.mean(generator.log_likelihood(parameters, rows, conditions))
        return loss, (kl, entropy)

    def generator_step(state: GANState, key: Array, data: AdversarialData) -> tuple[GANState, tuple]:
        value_and_grad = jax.value_and_grad(generator_loss, has_aux=True)
        (loss, terms), gradient = value_and_grad(state.generator, key, state, data)
        params, optimiser = descend(generator_adam, gradient, state.generator_optimiser, state.generator)
        average = jax.tree.map(
            lambda old, new: config.averaging * old + (1.0 - config.averaging) * new, state.average, params
        )
        state = state._replace(generator=params, average=average, generator_optimiser=optimiser)
        return state, (loss, *terms)

    def discriminator_loss(
        parameters: PyTree, key: Array, state: GANState, data: AdversarialData
    ) -> tuple[Array, Array]:
        key_batch, key_draw, key_loss = jax.random.split(key, 3)
        rows, conditions = batch(key_batch, data)
        drawn = jax.lax.stop_gradient(generator.generate(state.generator, key_draw, conditions).hard)
        loss = adversary.discriminator_loss(
            key_loss, lambda some: score(parameters, some, conditions), rows, drawn
        )
        one, other = score(parameters, rows, conditions), score(parameters, drawn, conditions)
        return loss, jnp.mean((one > other) + 0.5 * (one == other))

    def discriminator_step(state: GANState, key: Array, data: AdversarialData) -> tuple[GANState, tuple]:
        value_and_grad = jax.value_and_grad(discriminator_loss, has_aux=True)
        (loss, accuracy), gradient = value_and_grad(state.discriminator, key, state, data)
        params, optimiser = descend(
            discriminator_adam, gradient, state.discriminator_optimiser, state.discriminator
        )
        state = state._replace(discriminator=adversary.project(params), discriminator_optimiser=optimiser)
        return state, (loss, accuracy)

    def round_(key: Array, state: GANState, data: AdversarialData) -> tuple[GANState, GANMetrics]:
        keys = jax.random.split(key)
        steps = jax.random.split(keys[0], config.generator_steps)
        state, (loss, kl, entropy) = jax.lax.scan(partial(generator_step, data=data), state, steps)
        steps = jax.random.split(keys[1], config.discriminator_steps)
        score_loss, accuracy = jnp.zeros(1), jnp.full(1, 0.5)
        if config.discriminator_steps:
            state, (score_loss, accuracy) = jax.lax.scan(partial(discriminator_step, data=data), state, steps)
        return state, GANMetrics(*(jnp.mean(curve) for curve in (loss, score_loss, accuracy, kl, entropy)))

    return round_
