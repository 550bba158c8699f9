"""Streams in pairs, or in larger blocks, that meet the same chance: what differs between them is what was decided.

Requests differ from stream to stream far more than one replica more or less can change what comes of them. Streams that
share arrivals, run times and ways are compared with each other instead: their mean is a baseline that knows the
requests. Source: H. Mao et al., Variance reduction for reinforcement learning in input-driven environments, 2019.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree, Streams
from twin.orchestration.chance import Chance


def paired(chance: Chance, copies: int) -> Chance:
    """The chance in which every `copies` neighbouring streams of the last stream axis draw the same.

    Args:
        chance: Of the truth or of a twin.
        copies: Streams in a block, a divisor of the number of streams.

    Returns:
        The chance; ConfigError at the first draw where blocks do not come out even.
    """

    def same(draw: Callable[[Array, Streams], PyTree]) -> Callable[[Array, Streams], PyTree]:
        def drawn(key: Array, streams: Streams) -> PyTree:
            if not streams or streams[-1] % copies:
                raise ConfigError(
                    f"{copies} copies in streams {streams}",
                    where="paired",
                    allowed="a divisor of the last stream axis",
                    advice="change one of the two",
                )
            few = draw(key, (*streams[:-1], streams[-1] // copies))
            return jax.tree.map(lambda leaf: jnp.repeat(leaf, copies, axis=-1), few)

        return drawn

    return chance._replace(numbers=same(chance.numbers), first_s=same(chance.first_s))
