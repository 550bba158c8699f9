"""The Wasserstein GAN with clipped weights (Arjovsky et al. 2017): a baseline of Xiong et al., table 1."""

from twin.population.adversarial import AdversarialConfig, adversarial
from twin.population.adversaries import clipped
from twin.population.population import Population

LIMIT = 0.05


def wgan(config: AdversarialConfig | None = None) -> Population:
    """The Wasserstein GAN as a population."""
    return adversarial("wgan", config or AdversarialConfig(discriminator_steps=5), clipped(LIMIT))
