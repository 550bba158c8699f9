"""The contract between an exported policy and its callers: `contract.json`. Needs the standard library only.

The same form serves every problem whose decision is one choice out of several: what is seen of every choice (nodes,
waiting jobs), the context that all choices share (the request in hand, the pool), which choices are legal, and what
the system was like in training. What only one problem needs stands in `setting`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from logs_schema.errors import ProductError, SchedtwinError

CONTRACT = "contract.json"
SCHEMA_VERSION = 4
"""Version of the bundle's files."""
MAX_JSON_BYTES = 256 * 1024**2
MLP, SCORER = "mlp", "scorer"
"""Kinds of networks: see `offline_rl.numpy_networks`."""
EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE = "expected_on_time", "least_expected_response"
RULES = (EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE)
"""Kinds of rules, a few numbers each in place of layers: see `offline_rl.numpy_rules`."""
ON_TIME_BY_REPLICAS = "on_time_by_replicas"
CORRECTED = (*RULES, ON_TIME_BY_REPLICAS)
"""Rules that a scorer can correct; the last is of slot mode, where replicas decide."""
SHARPNESS = 40.0
"""What a rule's scores are multiplied by where a scorer corrects them."""
NOT_STATED = "not stated by whoever exported it"


@dataclass(frozen=True)
class FeatureFacts:
    """One feature.

    Attributes:
        name: Its name.
        unit: Unit of the number itself.
        low, high: Range on the training days, over all choices: the middle of what was logged, widened, and of flags
            all of it (`offline_rl.recipes.training_days`); None if not known.
        description: What it means.
    """

    name: str
    unit: str
    low: float | None = None
    high: float | None = None
    description: str = ""


@dataclass(frozen=True)
class NetworkFacts:
    """The network.

    Attributes:
        kind: `mlp`: all choices and the context in one vector; `scorer`: one small network scores every choice; or a
            rule, of `RULES`.
        hidden: Widths of the hidden layers; a rule has none.
        identity: Of a scorer: every choice has context weights of its own, so it is bound to its choices.
        pooled: Of a scorer: further layers see the mean over the legal choices.
        activation: Of the hidden layers.
        corrects: Of a scorer: the rule to whose scores, times `SHARPNESS`, its own are added; None for none.
        stand_in: A rule of the same training whose numbers lie beside the network's, for where it does not answer; None
            for none.
    """

    kind: str
    hidden: tuple[int, ...]
    identity: bool = True
    pooled: bool = False
    activation: str = "relu"
    corrects: str | None = None
    stand_in: str | None = None

    @property
    def any_choices(self) -> bool:
        """Whether it decides among any number of choices, known in training or not."""
        return self.kind in RULES or (self.kind == SCORER and not self.identity)


@dataclass(frozen=True)
class AlarmFacts:
    """What an alarm expects of days like the training days (`offline_rl.runner.watch`).

    Attributes:
        unlike_share: Share of decisions about requests unlike those of training.
        unlike_weights: What a request counts that is like those of training, and one that is not.
        unlike_limit: Where the sum of these is an alarm.
        run_edges: Bounds between classes of the logarithm of run times, over what is usual; increasing.
        slower_weights, faster_weights: What a run of every class counts, for slower and for faster runs.
        run_limit: Where a node's sum of these is an alarm; None where too few runs are known.
    """

    unlike_share: float
    unlike_weights: tuple[float, float]
    unlike_limit: float
    run_edges: tuple[float, ...] = ()
    slower_weights: tuple[float, ...] = ()
    faster_weights: tuple[float, ...] = ()
    run_limit: float | None = None


@dataclass(frozen=True)
class PolicyContract:
    """The contract between a policy and its callers.

    Attributes:
        problem: Kind of decision, as in manifests; not empty. Needed to decide from plain descriptions, not to decide
            from arrays.
        choice_features: Features of a choice, in order.
        context_features: Features that all choices share, in order.
        choices: Names of the choices in training, in order.
        network: What the network is.
        legality: When a choice is legal, in words.
        action: What a decision means, in words.
        normalisation: How the numbers are made of order one, in words.
        unknown: Kind of label -> what to do where it did not occur in training, in words.
        trained_on: The data window: archive days and what else identifies it.
        setting: What features are computed with; plain JSON, of the problem's own kind.
        alarm: What an alarm expects of days like the training days; None where that is not known.
        certificate: Content hash of the certificate that the twin passed; None if it passed none.
        licence: Under which terms the bundle may be used.
        schema_version: Version of the bundle's files.
    """

    problem: str
    choice_features: tuple[FeatureFacts, ...]
    context_features: tuple[FeatureFacts, ...]
    choices: tuple[str, ...]
    network: NetworkFacts
    legality: str
    action: str = "index of the chosen choice"
    normalisation: str = "none is fitted"
    unknown: dict[str, str] = field(default_factory=dict)
    trained_on: dict[str, Any] = field(default_factory=dict)
    setting: dict[str, Any] = field(default_factory=dict)
    alarm: AlarmFacts | None = None
    certificate: str | None = None
    licence: str = NOT_STATED
    schema_version: int = SCHEMA_VERSION

    @property
    def widths(self) -> tuple[int, int, int]:
        """Number of choices, of features of a choice, of features of the context."""
        return len(self.choices), len(self.choice_features), len(self.context_features)


def write_contract(folder: Path, contract: PolicyContract) -> None:
    """Writes `contract.json`; ProductError where it holds what has no JSON form (NaN, infinity)."""
    try:
        text = json.dumps(asdict(contract), indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ProductError(
            "the contract has no JSON form",
            where=str(error),
            allowed="finite numbers, text, lists, mappings, null",
        ) from error
    (folder / CONTRACT).write_text(text + "\n", encoding="utf-8")


def read_contract(folder: Path) -> PolicyContract:
    """Reads `contract.json`.

    Raises:
        ProductError: It is missing, damaged, of another version, or of a network unknown here.
    """
    path = folder / CONTRACT
    with refusing("the bundle's contract cannot be read", path):
        content = read_json(path)
        version = content["schema_version"]
        contract = _parsed(content) if version == SCHEMA_VERSION else None
    if contract is None:
        raise ProductError(
            f"the bundle is of version {version}",
            where=str(path),
            allowed=f"version {SCHEMA_VERSION}",
            advice=f"make it again from its policy: schedtwin export POLICY --out {folder} --replace",
        )
    network = contract.network
    for what, found, allowed in (
        ("activation", network.activation, ("relu",)),
        ("network", network.kind, (MLP, SCORER, *RULES)),
        ("rule to correct", network.corrects or EXPECTED_ON_TIME, CORRECTED),
        ("rule that stands in", network.stand_in or EXPECTED_ON_TIME, RULES),
    ):
        if found not in allowed:
            raise ProductError(f"unknown {what} '{found}'", where=str(path), allowed=", ".join(allowed))
    return contract


@contextmanager
def refusing(what: str, path: Path) -> Iterator[None]:
    """Raises ProductError in place of whatever a broken or hostile file makes its reader raise."""
    try:
        yield
    except SchedtwinError:
        raise
    except Exception as error:  # parsers of foreign bytes have no common base
        where = f"{path}: {type(error).__name__}: {error}"[:500]
        raise ProductError(what, where=where, advice="export the policy again") from error


def read_json(path: Path) -> Any:
    """A JSON file of a bundle; ValueError where it is too large or a number is not finite."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ValueError(f"{path.stat().st_size:,} bytes, allowed {MAX_JSON_BYTES:,}")

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"a number is not finite: {text}")
        return value

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=finite, parse_float=finite)


def _parsed(content: Mapping[str, Any]) -> PolicyContract:
    content = dict(content)
    _refuse_surprises(PolicyContract, content)
    for name in ("choice_features", "context_features"):
        content[name] = tuple(FeatureFacts(**_checked(FeatureFacts, one)) for one in content[name])
    network = dict(_checked(NetworkFacts, content["network"]))
    network["hidden"] = tuple(network["hidden"])
    content["network"] = NetworkFacts(**network)
    content["choices"] = tuple(content["choices"])
    for name in ("unknown", "trained_on", "setting"):
        content[name] = dict(content[name])
    content["alarm"] = alarm_of(content.get("alarm"))
    contract = PolicyContract(**content)
    _refuse_other_types(contract)
    return contract


def _refuse_other_types(contract: PolicyContract) -> None:
    facts, features = contract.network, (*contract.choice_features, *contract.context_features)
    texts = [contract.problem, contract.legality, contract.action, contract.normalisation, contract.licence]
    texts += [*contract.choices, *contract.unknown.values(), facts.kind, facts.activation]
    texts += [text for one in features for text in (one.name, one.unit, one.description)]
    texts += [] if contract.certificate is None else [contract.certificate]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("names, units and sentences must be text")
    widths = (*facts.hidden, len(contract.choices))
    is_layered = bool(facts.hidden) != (facts.kind in RULES)
    if not contract.problem:
        raise ValueError("the problem must have a name")
    if not is_layered or not all(type(width) is int and width > 0 for width in widths):
        raise ValueError("there must be choices, and hidden layers of positive widths; a rule has no layers")
    if type(facts.identity) is not bool or type(facts.pooled) is not bool:
        raise TypeError("identity and pooled must be true or false")
    if len(set(contract.choices)) != len(contract.choices):
        raise ValueError("choices must have different names")
    for one in features:
        if (one.low is None) != (one.high is None) or not (one.low is None or _is_range(one.low, one.high)):
            raise ValueError(f"the range of '{one.name}' cannot be: {one.low} to {one.high}")


def alarm_of(content: Mapping[str, Any] | None) -> AlarmFacts | None:
    """An alarm from its JSON form; ValueError or TypeError where it cannot be."""
    if content is None:
        return None
    fields_of_alarm: dict[str, Any] = {
        name: tuple(map(float, one)) if isinstance(one, list | tuple) else one
        for name, one in _checked(AlarmFacts, content).items()
    }
    alarm = AlarmFacts(**fields_of_alarm)
    _refuse_other_alarm(alarm)
    return alarm


def _refuse_other_alarm(alarm: AlarmFacts) -> None:
    limits = [alarm.unlike_share, alarm.unlike_limit] + ([] if alarm.run_limit is None else [alarm.run_limit])
    if not all(isinstance(limit, int | float) and limit > 0.0 for limit in limits):
        raise ValueError("the limits of the alarm must be positive")
    num_classes = 0 if alarm.run_limit is None else len(alarm.run_edges) + 1
    widths = [len(one) for one in (alarm.unlike_weights, alarm.slower_weights, alarm.faster_weights)]
    if widths != [2, num_classes, num_classes] or list(alarm.run_edges) != sorted(alarm.run_edges):
        raise ValueError("the weights of the alarm do not belong to its classes of run times")


def _is_range(low: Any, high: Any) -> bool:
    return all(isinstance(end, int | float) for end in (low, high)) and low <= high


def _checked(kind: type, content: Mapping[str, Any]) -> Mapping[str, Any]:
    _refuse_surprises(kind, content)
    return content


def _refuse_surprises(kind: type, content: Mapping[str, Any]) -> None:
    surprises = sorted(content.keys() - {one.name for one in fields(kind)})
    if surprises:
        raise ValueError(f"unexpected: {', '.join(surprises)}")
