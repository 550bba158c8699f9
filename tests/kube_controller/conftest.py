"""An API server that stands in for Kubernetes, with what the module names in `DEPLOYED`, and a bench beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube_controller.bench import Bench, access
from tests.kube_controller.stand_in import StandIn, listening


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with listening(StandIn(request.module.DEPLOYED)) as held:
        yield held


@pytest.fixture
def bench(api: StandIn, tmp_path: Path) -> Bench:
    return Bench(access(api), tmp_path)
