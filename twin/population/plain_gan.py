"""The plain GAN (Goodfellow et al. 2014), non-saturating: a baseline of Xiong et al., table 1."""

from twin.population.adversarial import AdversarialConfig, adversarial
from twin.population.adversaries import logistic
from twin.population.population import Population


def plain_gan(config: AdversarialConfig | None = None) -> Population:
    """The plain GAN as a population."""
    return adversarial("plain_gan", config or AdversarialConfig(), logistic())
