"""Training of the networks in the CoRaiS paper's tables: a product for every network, scale and seed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from evaluation.jobs.job import Step
from evaluation.reproduction.corais_scales import TABLE_3, Scale
from evaluation.reproduction.corais_solvers import CORAIS, OURS
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.assignment.config import OURS_LEARNING, LearningConfig
from offline_rl.assignment.corais import CoraisNetwork
from offline_rl.assignment.layers import Params
from offline_rl.assignment.learning import train_corais, train_priced
from twin.arrays import load_nested, save_arrays

PARAMS = "params.npz"
NETWORK_CODE = 2
"""Raised when changes of the code change trained networks: those of older code are made again."""


@dataclass(frozen=True)
class NetworksConfig:
    """What is trained, and how long.

    Attributes:
        scales: Trained on each of these; other scales are solved by the networks of the last one.
        num_seeds: Networks of every kind and scale: seeds 0, 1, ...
        corais: The paper's network.
        corais_learning, ours_learning: Their training.
    """

    scales: tuple[Scale, ...] = (*(one for one in TABLE_3 if one != TABLE_3[1]), TABLE_3[1])
    num_seeds: int = 5
    corais: CoraisNetwork = field(default_factory=CoraisNetwork)
    corais_learning: LearningConfig = field(default_factory=LearningConfig)
    ours_learning: LearningConfig = OURS_LEARNING

    def __post_init__(self) -> None:
        if self.num_seeds < 1 or not self.scales:
            raise ConfigError(
                f"{self.num_seeds} networks of {len(self.scales)} scales",
                where="reproduce corais",
                allowed="1 or more",
            )

    def of(self, scale: Scale) -> Scale:
        """The scale whose networks solve a scale."""
        return scale if scale in self.scales else self.scales[-1]


def quick_networks() -> NetworksConfig:
    """Small networks, trained for about a minute of one processor in all: a first look, not the paper's."""
    learning = LearningConfig(num_updates=150, batch=16, num_samples=32, learning_rate=2e-3)
    return NetworksConfig(
        TABLE_3[:1],
        1,
        CoraisNetwork(32, 64, 1, 1),
        learning,
        replace(learning, imitation_updates=200, imitation_instances=100, learning_rate=1e-3),
    )


def networks(config: NetworksConfig) -> Mapping[str, CoraisNetwork | None]:
    """Name -> network; None for ours. The ablations have as many parameters as the whole."""
    return {
        CORAIS: config.corais,
        f"{CORAIS}_fc1": replace(config.corais, edges_attend=False),
        f"{CORAIS}_fc2": replace(config.corais, requests_attend=False),
        f"{CORAIS}_fc3": replace(config.corais, edges_attend=False, requests_attend=False),
        OURS: None,
    }


def training_step(config: NetworksConfig, name: str, scale: Scale, seed: int) -> Step:
    """The step that trains one network."""
    network = networks(config)[name]
    learning = config.ours_learning if network is None else config.corais_learning

    def build(out: Path, _: Mapping[str, Path], progress: Progress) -> None:
        with progress.stage(f"{name} on {scale.name}", unit="updates") as stage:
            if network is None:
                params = train_priced(seed, scale.instances, learning, stage)
            else:
                params = train_corais(seed, scale.instances, network, learning, stage)
        save_arrays(out / PARAMS, params)

    settings = {
        "scale": scale,
        "network": None if network is None else asdict(network),
        "learning": asdict(learning),
    }
    return Step(
        f"{name}-{scale.slug}-{seed}",
        "assignment-network",
        build,
        config=settings,
        seed=seed,
        code_version=NETWORK_CODE,
    )


def load_params(folder: Path) -> Params:
    """The parameters that a training step kept."""
    return load_nested(folder / PARAMS)
