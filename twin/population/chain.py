"""The chain by itself: one column after the other by exact likelihood; a likelihood model, not the paper's GAN.

    minimise  - mean log p(x_1 | c) p(x_2 | x_1, c) ... p(x_K | x_1 ... x_K-1, c)

Nothing is drawn while it learns, so a step costs a fraction of an adversarial one. The default of `schedtwin fit`: in
our measurements the adversary of `gan_smmsg` adds nothing beside this likelihood.
"""

from twin.population.adversarial import AdversarialConfig, adversarial
from twin.population.adversaries import gradient_penalty
from twin.population.gan_smmsg import PENALTY
from twin.population.population import Population
from twin.population.training import SearchConfig


def default_config() -> AdversarialConfig:
    """Likelihood only; evaluations are close together because it is soon done."""
    search = SearchConfig(num_rounds=6000, rounds_a_look=50, patience=8)
    return AdversarialConfig(
        adversary=0.0, rows=1.0, chained=True, hidden=(128,), discriminator_steps=0, search=search
    )


def chain(config: AdversarialConfig | None = None) -> Population:
    """The chain as a population."""
    return adversarial("chain", config or default_config(), gradient_penalty(PENALTY))
