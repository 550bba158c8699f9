"""The judges of a placement comparison that play windows of the log: replay, and twins."""

from collections.abc import Callable, Sequence
from functools import cache, partial

from evaluation.comparison.shifts import TestDays
from evaluation.judges.descriptions import REPLAY, SHIFTED_TWIN, TRAINING_TWIN
from evaluation.judges.judge import (
    Judge,
    common_shape,
    replay_judge,
    replay_program,
    twin_judge,
    twin_program,
)
from evaluation.judges.placement_entries import PolicyEntries
from evaluation.judges.players import Players
from evaluation.judges.unsupported import unspecified, without
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.shifted import fit_of_shifted, fit_to_shift, key_of_shift
from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.placement.fit import FitProgram
from twin.placement.learned import AnswerConfig
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin
from twin.placement.windows import Windows


def window_judges(
    case: Case, windows: Sequence[Windows], players: Players, entered: PolicyEntries, judge_notes: list[str]
) -> Callable[[TestDays, Windows, Callable[..., None]], list[Judge]]:
    """(shift, its windows, report) -> the wanted judges that play windows of the log: replay, a twin of these days, and
    the training twin. Programs are compiled once for all shifts."""
    encoding, shape = case.twin.encoding, common_shape(windows)
    others = {name: bundle.encoding for name, bundle in entered.bundles.items()}
    players = {**players, **entered.window_players()}
    replay = replay_program(encoding, players, others)
    program = twin_program(encoding, case.twin.config, players, others)
    fit = cache(partial(fit_of_shifted, case.twin, case.config))
    unspecified_in_training = unspecified(case.archive, case.plan.train_days)

    def judges_on(shift: TestDays, part: Windows, report: Callable[..., None]) -> list[Judge]:
        unspecified_here = unspecified(case.archive, shift.days)
        translated = {
            name: encode_days(case.archive, other, shift.days, num_steps=case.config.num_steps)
            for name, other in others.items()
        }
        judges = []
        if case.wants(REPLAY, shift):
            judges.append(without(replay_judge(replay, encoding, part, shape, translated), unspecified_here))
        twin = partial(twin_judge, program, encoding, part, copies=case.config.copies, others=translated)
        if case.wants(SHIFTED_TWIN, shift):
            report(text=f"shift {shift.name}: fit a twin of these days")
            shifted = _shifted_twin(key_of_shift(case.config, shift), case, fit, shift, judge_notes)
            if shifted is not None:
                judges.append(without(twin(model=shifted.model, shape=shape), unspecified_here))
        if case.wants(TRAINING_TWIN, shift):
            in_model = twin(model=case.twin.model, shape=shape, name=TRAINING_TWIN)
            judges.append(without(in_model, unspecified_in_training))
        return judges

    return judges_on


def _shifted_twin(
    key: Array,
    case: Case,
    fit_of: Callable[[], tuple[AnswerConfig, FitProgram]],
    shift: TestDays,
    notes: list[str],
) -> PlacementTwin | None:
    """A twin fitted on the test days, or None with a note where they lack what it needs."""

    def fit() -> PlacementTwin:
        begun = {} if case.shifted is None else case.shifted.result()
        if shift.name in begun:
            return begun[shift.name]
        return fit_to_shift(key, case.archive, case.twin, shift, *fit_of())

    try:
        return case.keep.unit(f"twin, {shift.name}", fit, PlacementTwin.save, PlacementTwin.load)
    except ConfigError as error:
        notes.append(f"shift {shift.name}: no twin of these days ({error.what}; needed: {error.allowed})")
        return None
