"""All ways to generate agents, by name, made from what `save_population` kept of their configuration."""

from collections.abc import Callable
from typing import Any

from logs_schema.records import with_tuples
from twin.population.adversarial import AdversarialConfig
from twin.population.bootstrap import ResamplingConfig, bootstrap
from twin.population.chain import chain
from twin.population.gan_smmsg import gan_smmsg, gan_smmsg_paper
from twin.population.marginals import MarginalsConfig, marginals
from twin.population.mixture import MixtureConfig, mixture
from twin.population.plain_gan import plain_gan
from twin.population.population import Population
from twin.population.training import SearchConfig
from twin.population.wgan import wgan
from twin.population.wgan_gp import wgan_gp

MAKERS: dict[str, Callable[..., Population]] = {
    made().name: made
    for made in (chain, gan_smmsg, gan_smmsg_paper, bootstrap, marginals, mixture, plain_gan, wgan, wgan_gp)
}
"""Name of a method -> the method of a configuration of its own type, or of its default without one."""


def _trained(make: Callable[[AdversarialConfig], Population]) -> Callable[[dict[str, Any]], Population]:
    def read(fields: dict[str, Any]) -> Population:
        search = SearchConfig(**fields["search"])
        return make(AdversarialConfig(**with_tuples(fields) | {"search": search}))

    return read


METHODS: dict[str, Callable[[dict[str, Any]], Population]] = {
    "bootstrap": lambda fields: bootstrap(ResamplingConfig(**fields)),
    "chain": _trained(chain),
    "gan_smmsg": _trained(gan_smmsg),
    "gan_smmsg_paper": _trained(gan_smmsg_paper),
    "marginals": lambda fields: marginals(MarginalsConfig(**fields)),
    "mixture": lambda fields: mixture(MixtureConfig(**fields)),
    "plain_gan": _trained(plain_gan),
    "wgan": _trained(wgan),
    "wgan_gp": _trained(wgan_gp),
}
"""Name of a method -> the method of a configuration's plain values."""
