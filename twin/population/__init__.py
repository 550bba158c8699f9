"""Who asks, learned: agents by GAN-SMMSG and its rivals, their arrival times, and both as arrivals of a twin."""

from twin.population.agents import AgentTable, Conditions, DrawReport, draw_agents
from twin.population.asking import (
    Asking,
    PopulationConfig,
    asking_facts,
    learn_asking,
    load_asking,
)
from twin.population.bootstrap import bootstrap
from twin.population.chain import chain
from twin.population.errors import PopulationError
from twin.population.gan_smmsg import gan_smmsg, gan_smmsg_paper
from twin.population.marginals import marginals
from twin.population.methods import MAKERS, METHODS
from twin.population.mixture import mixture
from twin.population.plain_gan import plain_gan
from twin.population.population import (
    Population,
    PopulationModel,
    fit_population,
    load_population,
    sample_agents,
    save_population,
)
from twin.population.wgan import wgan
from twin.population.wgan_gp import wgan_gp

__all__ = [
    "MAKERS",
    "METHODS",
    "AgentTable",
    "Asking",
    "Conditions",
    "DrawReport",
    "Population",
    "PopulationConfig",
    "PopulationError",
    "PopulationModel",
    "asking_facts",
    "bootstrap",
    "chain",
    "draw_agents",
    "fit_population",
    "gan_smmsg",
    "gan_smmsg_paper",
    "learn_asking",
    "load_asking",
    "load_population",
    "marginals",
    "mixture",
    "plain_gan",
    "sample_agents",
    "save_population",
    "wgan",
    "wgan_gp",
]
