"""Judges of the user's in a comparison of placements: which policies and days they get."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from evaluation.comparison.shifts import TestDays
from evaluation.judges.host_policy import HostPolicy
from evaluation.judges.judge import Candidate
from evaluation.judges.players import HISTORY, Player, PlayerInput, Players
from evaluation.judges.user_judges import JudgedDays
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.shifted import key_of_shift
from twin.contracts import Array, PyTree
from twin.placement.history import replay_log
from twin.placement.windows import Windows


@dataclass(frozen=True)
class JudgedPolicy:
    """A candidate as a function of its observation; without the logged decisions."""

    player: Player
    params: PyTree
    host: HostPolicy | None

    def __call__(self, key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        """As a `Policy`."""
        return self.player(self.params, key, PlayerInput(observation, None), legal)

    @property
    def error(self) -> BaseException | None:
        """What a policy of plain NumPy raised, if it did: a compiled program cannot raise it."""
        return None if self.host is None else self.host.error

    def forget_error(self) -> None:
        """Before another judge asks: what one judge made it raise says nothing of the others."""
        if self.host is not None:
            self.host.error = None


def judged_policies(
    players: Players, tried: Sequence[Candidate], hosted: Mapping[str, HostPolicy]
) -> dict[str, list[JudgedPolicy]]:
    """Name -> every seed of the candidates; `hosted` are those of plain NumPy."""
    found: dict[str, list[JudgedPolicy]] = {}
    for one in tried:
        if one.kind in players and one.kind != HISTORY:
            policy = JudgedPolicy(players[one.kind], one.params, hosted.get(one.name))
            found.setdefault(one.name, []).append(policy)
    return found


def judged_days(case: Case, shifts: Sequence[TestDays], windows: Sequence[Windows]) -> list[JudgedDays]:
    """The days of every shift that the log can answer."""
    return [
        JudgedDays(
            case.archive,
            case.twin,
            shift.shift_days,
            shift.days,
            key_of_shift(case.config, shift),
            cache(partial(replay_log, part, case.twin.encoding)),
        )
        for shift, part in zip(shifts, windows, strict=True)
    ]
