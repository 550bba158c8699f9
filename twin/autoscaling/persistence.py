"""A twin of an application as files: laws and load as arrays, what they mean as JSON; beside it the log it is of."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ProductError
from twin.arrays import load_arrays, save_arrays
from twin.autoscaling.fitting import ScalingCoverage
from twin.autoscaling.laws import Laws
from twin.autoscaling.scaling_log import DEPLOYMENT_COLUMNS, GATEWAY_COLUMNS, ScalingLog
from twin.autoscaling.workload import LoadModel

ARRAYS, MEANING = "application.npz", "application.json"
TAIL_FEATURES = 5


class ApplicationTwin(NamedTuple):
    """What was learned of an application."""

    deployments: tuple[str, ...]
    interval_s: float
    laws: Laws
    load: LoadModel
    coverage: ScalingCoverage


def save_application_twin(folder: Path, twin: ApplicationTwin) -> None:
    """Writes a twin into a folder."""
    arrays = {"laws": twin.laws, "load": twin.load, "coverage": twin.coverage}
    save_arrays(folder / ARRAYS, arrays)
    meaning = {
        "deployments": list(twin.deployments),
        "interval_s": twin.interval_s,
        "rows_of_a_piece": twin.load.deviation.shape[1],
    }
    (folder / MEANING).write_text(json.dumps(meaning, indent=1) + "\n")


def load_application_twin(folder: Path) -> ApplicationTwin:
    """Reads a twin; ProductError where the folder holds none."""
    refuse_without_laws(folder)
    meaning = _meaning(folder)
    number = len(meaning["deployments"])
    shapes: dict[str, Any] = {name: np.zeros((0, number), np.float32) for name in Laws._fields}
    shapes |= {"tail": np.zeros((0, TAIL_FEATURES), np.float32), "tail_spread": np.zeros((0, 1), np.float32)}
    laws = Laws(**shapes)
    load = LoadModel(np.zeros(0), np.zeros((0, meaning["rows_of_a_piece"])), np.zeros(()))
    coverage = ScalingCoverage(*(np.zeros(number) for _ in ScalingCoverage._fields))
    like = {"laws": laws, "load": load, "coverage": coverage}
    found = load_arrays(folder / ARRAYS, like, growing=("laws", "load"))
    return ApplicationTwin(tuple(meaning["deployments"]), meaning["interval_s"], **found)


def save_forecasts_alone(folder: Path, log: ScalingLog) -> None:
    """Writes what stands for a twin where a log does not tell enough for laws: its log is all there is."""
    meaning = {"deployments": list(log.deployments), "interval_s": log.interval_s, "laws": False}
    (folder / MEANING).write_text(json.dumps(meaning, indent=1) + "\n")


def has_laws(folder: Path) -> bool:
    """Whether a twin has laws to train in."""
    return bool(_meaning(folder).get("laws", True))


def refuse_without_laws(folder: Path) -> None:
    """ProductError where a twin has no laws to train in."""
    if not has_laws(folder):
        raise ProductError(
            "this twin forecasts what users see, and has no laws of deployments to train in",
            where=str(folder),
            allowed="a twin of a log with cores used, rate and response time of every deployment",
            advice="import these metrics and fit again; certify and bench forecasts take this twin and its log",
        )


def _meaning(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / MEANING).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ProductError(
            "there is no twin of an application here",
            where=str(folder / MEANING),
            advice="fit one on a log with deployment_samples",
        ) from error
    return found


LOG = "log.npz"


def save_log(folder: Path, log: ScalingLog) -> None:
    """Writes the log of a twin's training days beside the twin, which names its deployments."""
    save_arrays(folder / LOG, {"time_s": log.time_s, "columns": log.columns, "gateway": log.gateway})


def load_log(folder: Path) -> ScalingLog:
    """Reads the log beside a twin."""
    meaning = _meaning(folder)
    number = len(meaning["deployments"])
    like = {
        "time_s": np.zeros(0),
        "columns": {name: np.zeros((0, number)) for name in DEPLOYMENT_COLUMNS},
        "gateway": {name: np.zeros(0) for name in GATEWAY_COLUMNS},
    }
    found = load_arrays(folder / LOG, like, growing=("time_s", "columns", "gateway"))
    return ScalingLog(tuple(meaning["deployments"]), meaning["interval_s"], **found)
