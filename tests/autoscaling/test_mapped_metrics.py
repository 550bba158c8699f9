"""Which metrics an autoscaler's mapping has to name."""

from pathlib import Path

import pytest

import evaluation
from logs_schema.errors import ConfigError
from logs_schema.formats.mapping import read_mapping
from offline_rl.serving.prometheus import refuse_unmapped


def test_the_pod_autoscalers_rule_needs_the_use_of_processors_alone(tmp_path):
    (tmp_path / "map.toml").write_text("[metrics.cpu_cores_used]\n")
    mapping = read_mapping(tmp_path / "map.toml")
    refuse_unmapped(mapping, "hpa")
    with pytest.raises(ConfigError, match="response_s, request_rate_per_s of the gateway") as caught:
        refuse_unmapped(mapping, "students")
    assert caught.value.allowed.endswith(
        "response_s of deployments; request_rate_per_s of the gateway; response_p95_s of the gateway"
    )
    (tmp_path / "map.toml").write_text("[metrics.num_replicas]\n")
    with pytest.raises(ConfigError, match="does not name cpu_cores_used"):
        refuse_unmapped(read_mapping(tmp_path / "map.toml"), "hpa")


def test_the_example_of_queries_names_all_that_is_needed_each_of_its_own_interval():
    mapping = read_mapping(Path(evaluation.__file__).parent / "examples" / "metrics" / "prometheus.toml")
    refuse_unmapped(mapping, "students")
    step = f"[{mapping.interval_s:g}s]"
    for one in mapping.measured:
        assert one.source.count("(") == one.source.count(")")
        rates = one.source.count("rate(")
        assert one.source.count(step) == one.source.count("offset -30s") == rates
        assert not one.metric.counter
