"""The placement twin as a thing to keep: encoding, answers, and the arrivals of the days it was learned from."""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError, first
from logs_schema.logged_days import LoggedDays
from logs_schema.options import refuse_type
from logs_schema.product import MANIFEST
from logs_schema.progress import Progress, SilentProgress
from logs_schema.records import with_tuples
from logs_schema.settings import refuse_below_one
from twin.arrays import load_structure, save_arrays
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.fit import FitProgram, FitReport, fit_answers
from twin.placement.history import answered_environment, labelled_offers, replay_log
from twin.placement.learned import AnswerConfig, AnswerModel, answer_network, learned_answers, num_inputs
from twin.placement.log_windows import disjoint, fit_windows
from twin.placement.randomisation import Randomisation
from twin.placement.rewards import lost_is_worst
from twin.placement.run_filter import NodeLevel
from twin.placement.types import Carried, Cluster, Fate, InFlight, Requests
from twin.placement.windows import Windows
from twin.problems import PLACEMENT, refuse_other_problem
from twin.rollout import rollout

DEFAULT_RANDOMISATION = Randomisation(nodes=0.2, services=0.1)


@dataclass(frozen=True)
class PlacementTwin:
    """A learned twin of a placement system.

    Attributes:
        encoding: What the arrays mean.
        config: Of the ensemble of answers.
        model: Its parameters.
        windows: The logged requests it replays as arrivals (hybrid twin, Xiong et al. section 3.1.2).
        report: How the fit went.
    """

    encoding: Encoding
    config: AnswerConfig
    model: AnswerModel
    windows: Windows
    report: FitReport

    def environment(
        self, windows: Windows | None = None, randomisation: Randomisation | None = None
    ) -> Environment:
        """The system as the twin models it, with its own arrivals or those of other `windows`.

        With a `randomisation` every stream is a little unlike it: for training only.
        """
        answers = learned_answers(self.encoding, self.config, self.model, randomisation)
        chosen = self.windows if windows is None else windows
        return answered_environment(chosen, self.encoding, answers, reacts=True)

    def played(
        self,
        key: Array,
        policy: Policy,
        num_streams: int,
        *,
        windows: Windows,
        model: AnswerModel,
        randomisation: Randomisation | None = None,
        over_devices: bool = False,
    ) -> Trajectory:
        """Whole windows played by a policy, answered by `model`, some of the members; nothing is left unsettled.

        Requests that find no slot are worth the least, see `lost_is_worst`.
        """
        system = replace(self, model=model, windows=windows).environment(randomisation=randomisation)
        played = rollout(key, system, policy, windows.num_steps, (num_streams,), over_devices=over_devices)
        problem = self.encoding.problem
        return lost_is_worst(played, problem.reward, problem.worst_response)

    def disjoint_windows(self) -> Windows:
        """Every second window: `fit_twin` lets windows overlap by half, and what is held out must not be elsewhere."""
        return disjoint(self.windows)

    def history(self) -> Trajectory:
        """The log that it was fitted on as a trajectory, one stream a window, no request in two of them."""
        return replay_log(self.disjoint_windows(), self.encoding)

    def rollouts(
        self,
        streams: int = 320,
        *,
        disagreement: float = 1.0,
        randomisation: Randomisation = DEFAULT_RANDOMISATION,
    ) -> "Rollouts":
        """Experience for a learner: fresh episodes in the twin, see `Rollouts`; ConfigError where there can be none."""
        refuse_below_one("rollouts", streams=streams)
        refuse_type("randomisation", randomisation, Randomisation, "rollouts")
        return Rollouts(self, streams, disagreement, randomisation)

    def save(self, folder: Path | str) -> None:
        """Writes the twin into an existing folder: JSON and npz, no pickle; ProductError where there is none."""
        folder = Path(folder)
        if not folder.is_dir():
            raise ProductError("there is no such folder", where=str(folder), advice="make it first")
        (folder / "encoding.json").write_text(self.encoding.to_json())
        (folder / "answers.json").write_text(json.dumps(asdict(self.config), indent=1))
        save_arrays(folder / "answers.npz", self.model)
        save_arrays(folder / "windows.npz", self.windows)
        save_arrays(folder / "fit.npz", self.report)

    @staticmethod
    def load(folder: Path | str) -> "PlacementTwin":
        """Reads what `save` wrote.

        Raises:
            ProductError: A file is missing or is not what it should be.
        """
        folder = Path(folder)
        encoding = load_encoding(folder)
        config = AnswerConfig(**with_tuples(json.loads(_text(folder / "answers.json"))))
        inputs = np.zeros((num_inputs(encoding.cluster), 1), np.float32)
        shape = jax.eval_shape(answer_network(config).init, jax.random.key(0), inputs)
        report = FitReport(*(0 for _ in FitReport._fields))
        model = load_structure(folder / "answers.npz", AnswerModel(shape, 0.0, 0.0, 0.0))
        _refuse_other_shapes(folder, model, shape)
        return PlacementTwin(
            encoding,
            config,
            model,
            load_windows(folder / "windows.npz", encoding.cluster),
            load_structure(folder / "fit.npz", report),
        )


def _refuse_other_shapes(folder: Path, model: AnswerModel, member: PyTree) -> None:
    """ProductError where the parameters are not those of a network of this version."""
    found = [leaf.shape[1:] for leaf in jax.tree.leaves(model.parameters)]
    wanted = [leaf.shape for leaf in jax.tree.leaves(member)]
    if found != wanted:
        raise ProductError(
            "the twin's answers are of another version: their network has other inputs",
            where=f"{folder / 'answers.npz'}: shapes {first(found)}",
            allowed=first(wanted),
            advice="fit the twin again with this version (schedtwin fit)",
        )


def fit_days(
    days: LoggedDays,
    *,
    seed: int = 0,
    config: AnswerConfig | None = None,
    num_steps: int = 128,
    view: str = "full",
) -> PlacementTwin:
    """A twin of some days of a log.

    Args:
        days: To learn from; what happened after the last of them is not looked at.
        seed: Of the fit.
        config: Of the ensemble of answers.
        num_steps: Requests per window.
        view: What a site observes of the nodes of other sites: all of them, or their "summary".

    Raises:
        ConfigError: Windows of no request, an unknown view, or as `fit_twin`.
    """
    refuse_below_one("fit", num_steps=num_steps)
    encoding = fit_encoding(days.archive, days.days, view=view)
    key = jax.random.key(seed)
    return fit_twin(key, days.archive, encoding, days.days, config or AnswerConfig(), num_steps=num_steps)


class Rollouts(NamedTuple):
    """The episodes in a twin that a learner trains on, and what guards it against the twin's errors.

    Attributes:
        twin: Where they are played.
        streams: Episodes at once, each with one member of the ensemble; one member is held out to select by.
        disagreement: Weight of the members' disagreement on a decision's worth, taken from its reward.
        randomisation: How far durations are randomised from stream to stream.
    """

    twin: PlacementTwin
    streams: int
    disagreement: float
    randomisation: Randomisation


def load_encoding(folder: Path) -> Encoding:
    """The encoding kept in a twin's or policy's folder; ProductError where there is none, or one of another version."""
    if not (folder / "encoding.json").exists() and (folder / MANIFEST).is_file():
        refuse_other_problem(folder, PLACEMENT)
    text = _text(folder / "encoding.json")
    try:
        return Encoding.from_json(text)
    except (KeyError, TypeError, ValueError) as error:
        raise ProductError(
            f"the encoding cannot be read: {error}",
            where=str(folder / "encoding.json"),
            allowed="what this version of schedtwin wrote",
            advice="fit the twin and train again",
        ) from error


def load_windows(path: Path, cluster: Cluster) -> Windows:
    """The windows that `save_arrays` wrote."""
    requests = Requests(*(0 for _ in Requests._fields))
    requests = requests if cluster.node_tide.variance else requests._replace(node_tide=None)
    requests = requests if cluster.reaction else requests._replace(discontent=None, ill_in_log=None)
    requests = requests if cluster.timeouts else requests._replace(run_limit_s=None)
    fate, table = Fate(*(0 for _ in Fate._fields)), InFlight(*(0 for _ in InFlight._fields))
    table = table if cluster.is_ranked else table._replace(rank=None)
    carried = Carried(0, 0, table, fate)
    structure = Windows(requests, 0, 0, 0, fate, carried, 0, 0, 0, NodeLevel(0, 0), 0)  # type: ignore[arg-type]
    if cluster.cold is not None:
        structure = structure._replace(last_end_s=0, filed_s=0)
    if cluster.repeats is not None:
        structure = structure._replace(repeats=0)
    if cluster.awaits:
        structure = structure._replace(think_s=0)
    if cluster.is_ranked:
        structure = structure._replace(driven_out=0)
    if cluster.pace is not None:
        structure = structure._replace(work_s=0, carried=carried._replace(work_s=0))
    windows = load_structure(path, structure)
    return windows._replace(num_overflow=int(windows.num_overflow))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ProductError(f"cannot read {path.name}: {error}", where=str(path.parent)) from error


def fit_twin(
    key: Array,
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    config: AnswerConfig,
    *,
    num_steps: int,
    program: FitProgram | None = None,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> PlacementTwin:
    """Learns a twin from some days of an archive; what happened after the last of them is not looked at.

    Args:
        key: PRNG key.
        archive: The log archive.
        encoding: Fitted on the training days.
        days: Days to learn from (the training days, or the shifted days a policy is judged on).
        config: Of the ensemble.
        num_steps: Requests per window.
        program: From `fit_program`, where several twins of this encoding and configuration are fitted.
        progress: Progress display.
        checkpoint: As of `fit_answers`.

    Raises:
        ConfigError: Too few requests with a known decision, or no run time among them.
    """
    logged, starts = fit_windows(archive, encoding, days, num_steps)
    if not np.isfinite(logged.fate.finish_s[logged.valid()]).any():
        raise ConfigError(
            "no request of these days is known to have ended, so there is no run time to learn",
            where=f"{archive.path}, table requests, {first(sorted(days))}",
            allowed="requests with start and finish",
            advice="log when requests end, or train on days when some did",
        )
    progress = progress or SilentProgress()
    with progress.stage("follow the log", unit="windows") as stage:
        offers = labelled_offers(logged, encoding, stage)
    with progress.stage("learn the answers"):
        model, report = fit_answers(key, offers, encoding, config, program, checkpoint)
    return PlacementTwin(encoding, config, model, starts, report)
