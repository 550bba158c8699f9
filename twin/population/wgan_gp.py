"""The Wasserstein GAN with gradient penalty (Gulrajani et al. 2017): a baseline of Xiong et al., table 1."""

from twin.population.adversarial import AdversarialConfig, adversarial
from twin.population.adversaries import gradient_penalty
from twin.population.population import Population

PENALTY = 10.0


def wgan_gp(config: AdversarialConfig | None = None) -> Population:
    """The Wasserstein GAN with gradient penalty as a population."""
    return adversarial(
        "wgan_gp", config or AdversarialConfig(discriminator_steps=3), gradient_penalty(PENALTY)
    )
