"""Judges of the user's in a comparison of placements: which policies and days they get."""

from collections.abc import Sequence
from functools import cache, partial

from evaluation.comparison.shifts import TestDays
from evaluation.judges.players import HISTORY, Player, PlayerInput, Players
from evaluation.judges.user_judges import JudgedDays
from evaluation.judges.windows import Candidate
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.shifted import key_of_shift
from twin.contracts import Array, Policy, PyTree
from twin.placement.history import replay_log
from twin.placement.windows import Windows


def judged_policies(players: Players, tried: Sequence[Candidate]) -> dict[str, list[Policy]]:
    """Name -> every seed of the candidates as a function of its observation; without the logged decisions."""
    found: dict[str, list[Policy]] = {}
    for one in tried:
        if one.kind in players and one.kind != HISTORY:
            found.setdefault(one.name, []).append(partial(_decide, players[one.kind], one.params))
    return found


def _decide(player: Player, params: PyTree, key: Array, observation: PyTree, legal: PyTree) -> PyTree:
    return player(params, key, PlayerInput(observation, None), legal)


def judged_days(case: Case, shifts: Sequence[TestDays], windows: Sequence[Windows]) -> list[JudgedDays]:
    """The days of every shift that the log can answer."""
    return [
        JudgedDays(
            case.archive, case.twin, shift.shift_days, shift.days, key_of_shift(case.config, shift),
            cache(partial(replay_log, part, case.twin.encoding)),
        )
        for shift, part in zip(shifts, windows, strict=True)
    ]  # fmt: skip
