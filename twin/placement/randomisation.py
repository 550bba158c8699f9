"""Domain randomisation: every stream of a training twin is a world a little unlike the log's.

A log shows one month's nodes; a policy that is to serve the next month must not lean on exact speeds. So in training
each stream has factors of its own on the durations that the learned answers give, fixed for its episode:

    factor(node, service) = exp(nodes * z(node) + services * z(node, service))        z: unit variance, logistic

They are hashes of the stream's seed, the node and the service, so no table of them is carried along.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array

_LARGEST = 2.5
_OF_STREAMS = np.uint32(0x27D4EB2F)
_LOGISTIC_DEVIATION = float(np.pi / np.sqrt(3.0))


@dataclass(frozen=True)
class Randomisation:
    """How far durations in a training twin vary from those it has learned.

    Attributes:
        nodes: Deviation of the logarithm of a node's slowness.
        services: Deviation of the logarithm of a service's slowness on one node.
        share: Of the streams that vary, in the mean; the others are as learned.
    """

    nodes: float = 0.0
    services: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.nodes <= 2.0 and 0.0 <= self.services <= 2.0):
            raise ConfigError(
                f"nodes = {self.nodes:g}, services = {self.services:g}",
                where="Randomisation",
                allowed="deviations of a logarithm, from 0 to 2",
            )
        if not 0.0 < self.share <= 1.0:
            raise ConfigError(
                f"share = {self.share:g}",
                where="Randomisation",
                allowed="a share of the streams, above 0 and at most 1",
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is randomised at all."""
        return self.nodes > 0.0 or self.services > 0.0


def draw_seeds(key: Array, streams: tuple[int, ...]) -> Array:
    """uint32 [*streams]: one seed for each stream."""
    return jax.random.bits(key, streams, jnp.uint32)


def factors(randomisation: Randomisation, seeds: Array, node: Array, service: Array) -> tuple[Array, Array]:
    """The factors on a wait and on a run.

    Args:
        randomisation: How far they vary from one.
        seeds: uint32 [*streams].
        node, service: int32 [seats, *streams].

    Returns:
        Factors [seats, *streams] > 0: a wait has the node's, a run the node's and the service's on it.
    """
    of_node = _deviate(seeds[None], node, jnp.zeros_like(service) - 1)
    of_pair = _deviate(seeds[None], node, service)
    if randomisation.share < 1.0:
        varies = scrambled(seeds ^ _OF_STREAMS) < np.uint32(randomisation.share * 2.0**32)
        of_node, of_pair = (jnp.where(varies[None], one, 0.0) for one in (of_node, of_pair))
    slow = jnp.exp(randomisation.nodes * of_node)
    return slow, slow * jnp.exp(randomisation.services * of_pair)


def _deviate(seeds: Array, node: Array, service: Array) -> Array:
    """A logistic deviate of unit variance, cut off at 2.5, that depends on nothing but its arguments."""
    mixed = scrambled(seeds ^ scrambled(node.astype(jnp.uint32) * np.uint32(0x9E3779B1)))
    mixed = scrambled(mixed ^ (service.astype(jnp.uint32) * np.uint32(0x85EBCA77)))
    uniform = (mixed.astype(jnp.float32) + 0.5) * np.float32(2.0**-32)
    uniform = jnp.clip(uniform, 1e-6, 1.0 - 1e-6)
    deviate = (jnp.log(uniform) - jnp.log1p(-uniform)) / _LOGISTIC_DEVIATION
    return jnp.clip(deviate, -_LARGEST, _LARGEST)


def scrambled(value: Array) -> Array:
    """A bijection of uint32 in which every bit of the result depends on every bit of the value (the finaliser of
    MurmurHash3)."""
    value = (value ^ (value >> 16)) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> 13)) * np.uint32(0xC2B2AE35)
    return value ^ (value >> 16)
