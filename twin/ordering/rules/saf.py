"""Smallest area first: `requested * processors` (Carastan-Santos et al. 2019, "One can only gain by replacing
EASY backfilling: a simple scheduling policies case study", CCGRID, call it SAF)."""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    return waiting.requested_s * waiting.processors


SAF = Rule("saf", "smallest requested area (processors x time) first", _score)
