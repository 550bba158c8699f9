"""The population as a part of a twin: what is configured, learned, kept, fallen back to and refused."""

from pathlib import Path

import jax
import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.generating import LINES, population_lines
from evaluation.certify.held_out import HeldOutDays
from evaluation.certify.lines import Verdict
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from tests.twin.population.test_agents import DAYS, archive_of, request
from twin.population import PopulationConfig, learn_workload_model, load_workload_model, sample_agents
from twin.population.adversarial import AdversarialConfig


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Sixty agents a day ask four times each, for one of two services of unlike size."""
    random, rows = np.random.default_rng(0), []
    for day in range(3):
        for agent in range(60):
            for second in np.sort(random.uniform(0.0, 86_000.0, 4)):
                service = "big" if random.random() < 0.5 else "small"
                cores = random.lognormal() + (8.0 if service == "big" else 0.0)
                fields = {"agent": f"agent-{agent}", "service": service, "cpu_cores": cores}
                rows.append(request(len(rows), day, float(second), **fields))
    return archive_of(tmp_path_factory.mktemp("logs") / "archive", rows)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "magic"}, "magic"),
        ({"kind": "bootstrap", "alpha": 1.0}, "neither alpha"),
        ({"kind": "mixture", "num_rounds": 5}, "neither alpha"),
        ({"rows_an_agent": 0}, "rows_an_agent"),
        ({"alpha": -1.0}, "weights"),
    ],
)
def test_impossible_configurations_are_refused(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PopulationConfig(**settings)


def test_the_weights_of_the_paper_can_be_reached() -> None:
    for config in (PopulationConfig("gan_smmsg_paper"), PopulationConfig("gan_smmsg", alpha=1.0, beta=1.0)):
        made = config.population()
        assert made is not None
        assert isinstance(made.config, AdversarialConfig)
        assert (made.config.entropy, made.config.columns) == (1.0, 1.0)
    shortened = PopulationConfig("wgan", num_rounds=7).population()
    assert shortened is not None
    assert shortened.config.search.num_rounds == 7
    assert PopulationConfig("none").population() is None


def test_few_rows_are_drawn_again_and_the_folder_says_so(archive: Archive, tmp_path: Path) -> None:
    key = jax.random.key(0)
    facts = learn_workload_model(key, archive, DAYS, PopulationConfig(), tmp_path / "population")
    assert (facts["kind"], facts["unit"]) == ("bootstrap", "agent and day")
    assert (facts["num_rows"], facts["rows_a_unit"], facts["num_units"]) == (720, 4, 180)
    assert "180 units (one for every agent and day) are too few to train chain on" in facts["fallback"]
    workload = load_workload_model(tmp_path / "population")
    assert workload.facts == facts
    assert float(np.sum(workload.times.rate_per_s)) > 0.0
    drawn = sample_agents(jax.random.key(1), workload.model, 200)
    assert set(drawn.categorical["service"]) == {"big", "small"}
    wanted = learn_workload_model(key, archive, DAYS, PopulationConfig("marginals"), tmp_path / "asked")
    assert "fallback" not in wanted


def test_what_cannot_be_learned_is_refused_and_said_in_the_certificate(
    archive: Archive, tmp_path: Path
) -> None:
    rows = [request(number, number % 3, float(number), service="a") for number in range(60)]
    few = archive_of(tmp_path / "few", rows)
    facts = learn_workload_model(jax.random.key(0), few, DAYS, PopulationConfig(), tmp_path / "population")
    assert facts["kind"] == "none"
    assert "60 arrivals are too few" in facts["refusal"]
    with pytest.raises(ProductError, match="60 arrivals are too few"):
        load_workload_model(tmp_path / "population")
    chosen = HeldOutDays((DAYS[1],), (DAYS[2],), ())
    told = population_lines(archive, tmp_path / "population", DAYS[:1], chosen, CertifyConfig())
    assert [line.name for line in told.lines] == list(LINES)
    for line in told.lines:
        assert line.verdict is Verdict.NOT_APPLICABLE
        assert "60 arrivals are too few" in line.reason


def test_none_leaves_nothing_behind(archive: Archive, tmp_path: Path) -> None:
    facts = learn_workload_model(
        jax.random.key(0), archive, DAYS, PopulationConfig("none"), tmp_path / "population"
    )
    assert facts == {"kind": "none"}
    assert not (tmp_path / "population").exists()
    with pytest.raises(ProductError, match="none was configured"):
        load_workload_model(tmp_path / "population")
