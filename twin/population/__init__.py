"""Workload models: agents by GAN-SMMSG and its rivals, their arrival times, and both as arrivals of a twin."""

from twin.population.agents import AgentConditions, AgentTable, DrawReport, draw_agents
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
from twin.population.workload import (
    PopulationConfig,
    WorkloadModel,
    learn_workload_model,
    load_workload_model,
    workload_facts,
)

__all__ = [
    "MAKERS",
    "METHODS",
    "AgentConditions",
    "AgentTable",
    "DrawReport",
    "Population",
    "PopulationConfig",
    "PopulationError",
    "PopulationModel",
    "WorkloadModel",
    "bootstrap",
    "chain",
    "draw_agents",
    "fit_population",
    "gan_smmsg",
    "gan_smmsg_paper",
    "learn_workload_model",
    "load_population",
    "load_workload_model",
    "marginals",
    "mixture",
    "plain_gan",
    "sample_agents",
    "save_population",
    "wgan",
    "wgan_gp",
    "workload_facts",
]
