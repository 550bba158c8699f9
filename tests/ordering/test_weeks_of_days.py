"""What a job whose log turns out a batch queue takes from [days] and [shifts], and what it says of the rest."""

from typing import Any, cast

import pytest

from evaluation.problems.configuration import RunConfig, load_config
from evaluation.problems.kit import Job, ProblemOptions
from evaluation.problems.ordering.kit import ORDERING_KIT
from logs_schema.errors import ArchiveError
from logs_schema.progress import SilentProgress


class _Notes(SilentProgress):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def configured(tmp_path, text: str) -> RunConfig:
    (tmp_path / "job.toml").write_text(text)
    return ORDERING_KIT.configured(load_config(tmp_path / "job.toml"), ProblemOptions())


def notes_of(config: RunConfig, tmp_path) -> list[str]:
    """What a job says before it reads its archive, which is not there."""
    nothing, progress = cast(Any, None), _Notes()
    with pytest.raises(ArchiveError, match="no archive here"):
        ORDERING_KIT.run(Job(config, "", False, tmp_path / "none", nothing, nothing, progress, nothing))
    return progress.told


def test_shifts_and_the_number_of_days_become_those_of_the_weeks(tmp_path):
    config = configured(tmp_path, '[days]\nnum_days = 20\n[shifts]\nshifts = "0d,3d"\n')
    assert (config.order.weeks.num_train_days, config.order.weeks.shifts) == (20, "0d,3d")
    assert notes_of(config, tmp_path) == []
    plain = configured(tmp_path, "").order.weeks
    assert (plain.num_train_days, plain.shifts) == (28, "0d,1d,7d,30d")


def test_one_user_is_one_in_words():
    facts = {
        "num_jobs": 1,
        "num_users": 1,
        "num_too_large": 0,
        "processors": 4.0,
        "first_day": "a",
        "last_day": "b",
    }
    assert ORDERING_KIT.fitted(facts | {"counts": {}})[0].endswith("a to b: 1 job of 1 user")
    assert (
        "2 jobs of 1,200 users"
        in ORDERING_KIT.fitted(facts | {"counts": {}, "num_jobs": 2, "num_users": 1200})[0]
    )


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        (
            "[days]\nlast_day = 1997-03-01\n[shifts]\nmin_requests = 9\n",
            "[days] last_day, [shifts] min_requests",
        ),
        ('[order]\n[days]\nnum_days = 20\n[shifts]\nshifts = "0d"\n', "[days] num_days, [shifts] shifts"),
        ('[order.weeks]\nshifts = "0d"\n[shifts]\nshifts = "0d"\n', ""),
    ],
)
def test_what_is_not_read_is_said(tmp_path, text, unread):
    told = notes_of(configured(tmp_path, text), tmp_path)
    assert [one.split(";")[0] for one in told] == ([f"not read for a queue: {unread}"] if unread else [])
