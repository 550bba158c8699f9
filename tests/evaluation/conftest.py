"""The products of the tiny main job, made once for a file of tests, and the page of a made-up report."""

from pathlib import Path

import pytest

from tests.evaluation.tiny_job import do, make_small


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return do(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="session")
def plain() -> str:
    from evaluation.comparison.report import render
    from tests.evaluation.made_reports import made_report

    return render(made_report())
