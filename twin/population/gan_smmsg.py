"""GAN-SMMSG: the population of Xiong et al. (section 3.3, equations 3 and 4, algorithm 1).

Two configurations. `paper_config` is the paper's: all columns at once, alpha = beta = 1, the KL between columns, one
step of each side. The default keeps the loss and mends what made it miss the joint law: columns are written one after
the other, so that the KL of whole rows is known and can be had beside those of columns, and the entropy has no weight,
since at weight one it flattens what is really uneven.
"""

from twin.population.adversarial import AdversarialConfig, adversarial
from twin.population.adversaries import gradient_penalty, probability
from twin.population.population import Population

PENALTY = 10.0


def default_config() -> AdversarialConfig:
    """The configuration that worked best; the adversary neither helped nor hurt measurably beside the KL of rows."""
    return AdversarialConfig(adversary=0.1, rows=1.0, chained=True, hidden=(128,))


def paper_config() -> AdversarialConfig:
    """Equation 4 with alpha = beta = 1."""
    return AdversarialConfig(entropy=1.0, columns=1.0)


def gan_smmsg(config: AdversarialConfig | None = None) -> Population:
    """GAN-SMMSG against a Wasserstein critic with gradient penalty; the default configuration where none is given."""
    return adversarial("gan_smmsg", config or default_config(), gradient_penalty(PENALTY))


def gan_smmsg_paper(config: AdversarialConfig | None = None) -> Population:
    """GAN-SMMSG with the paper's discriminator and generator losses as they stand."""
    return adversarial("gan_smmsg_paper", config or paper_config(), probability())
