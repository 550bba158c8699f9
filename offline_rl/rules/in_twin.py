"""The rules that every comparison holds: fitted on a twin's log, and tuned in the twin.

`expected_on_time` stands wherever requests have deadlines, `least_expected_response` everywhere. The first of them that
stands is tuned in the twin, with the members that policies are trained with: its price of cores, and how wide run times
scatter or, without deadlines, how long backlogs take. Where runs slow each other, so is then the toll for those that
run already; where requests share a link, say (`twin.placement.shared_waits`), how long transfers take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage, unseen
from offline_rl.contract import EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE
from offline_rl.losses import weighted_mean
from offline_rl.networks import greedy_policy
from offline_rl.rules import fit_rules, numbers_of, rule_actor
from offline_rl.rules.tuning import Tuned, successive_halving
from twin.contracts import Array, Policy, PyTree
from twin.placement.encoding import Encoding
from twin.placement.history import labelled_offers
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin
from twin.placement.randomisation import Randomisation
from twin.placement.windows import Windows

TUNED = {rule: f"{rule}_tuned" for rule in (EXPECTED_ON_TIME, LEAST_EXPECTED_RESPONSE)}
"""Rule -> name of its tuned form."""
DESCRIPTIONS = {
    EXPECTED_ON_TIME: "a rule: acceptance times the probability of ending within the deadline, by the log's own tables",
    TUNED[
        EXPECTED_ON_TIME
    ]: "the same rule, its price of cores, its spread of run times and its toll tuned in the training twin",
    LEAST_EXPECTED_RESPONSE: "a rule: earliest expected end, by queues and the log's own tables",
    TUNED[
        LEAST_EXPECTED_RESPONSE
    ]: "the same rule, its price of cores, its scale of waits and its toll tuned in the training twin",
}
"""Name of a rule -> one sentence."""
PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
FACTORS = (1.0, 2.0)
"""What is tried; factors of the numbers in `SCALED`, as the log gave them."""
SCALED = {EXPECTED_ON_TIME: ("spread",), LEAST_EXPECTED_RESPONSE: ("wait_scale", "behind_scale")}
CROWDED_PRICES, CROWDINGS = (0.0, 0.05, 0.2, 0.8), (1.0, 2.0)
"""What is tried where a crowd slows runs; factors of the slopes found in the log: a request also slows those beside."""

TOLLS = (0.0, 0.03, 0.1, 0.3)
"""What is tried next where runs slow each other, with the log's numbers and with the best ones so far. Where the
logged behaviour evens crowds out, no slope is seen: nodes fill up again, however few ran there at the offer."""

TRANSFERS = (1.0, 0.4, 2.0, 4.0)
"""Factors that are tried next where requests share what brings them to a node: what a transfer took in the log was for
those that the log's scheduler had under way."""


def rules_of(twin: PlacementTwin) -> dict[str, PyTree]:
    """The rules that a twin's log supports, by name, with the numbers fitted to it."""
    found = fit_rules(labelled_offers(twin.disjoint_windows(), twin.encoding), twin.encoding)
    rules = {LEAST_EXPECTED_RESPONSE: found.params(LEAST_EXPECTED_RESPONSE)}
    if twin.encoding.problem.reward == "on_time":
        rules = {EXPECTED_ON_TIME: found.params(EXPECTED_ON_TIME)} | rules
    return rules


def rules_in_words(rules: Mapping[str, PyTree], encoding: Encoding) -> str:
    """Which rules a log supports, and which inputs of those that remain the log lacks."""
    lacking = [] if EXPECTED_ON_TIME in rules else [f"not {EXPECTED_ON_TIME}: requests have no deadlines"]
    cores = np.asarray(encoding.cluster.capacity)[0]
    unknown = int(np.sum(~np.isfinite(cores)))
    if unknown:
        lacking.append(
            f"the cores of {unknown} of {len(cores)} nodes are not known, or without end: there they expect no queue"
        )
    return "; ".join([f"rules from the log: {', '.join(rules)}", *lacking])


def tune_rules(
    key: Array,
    twin: PlacementTwin,
    windows: Windows,
    model: AnswerModel,
    rules: Mapping[str, PyTree],
    num_streams: int,
    stage: Stage = unseen,
    randomisation: Randomisation | None = None,
) -> tuple[dict[str, PyTree], Tuned]:
    """The tuned rule by its name, and how the candidates did.

    Args:
        key: PRNG key.
        twin: Where to tune.
        windows: The episodes.
        model: The members to tune with.
        rules: From `rules_of`.
        num_streams: Streams that every candidate plays in a round, a multiple of the members.
        stage: Told how many rounds are done.
        randomisation: How far durations vary from what the twin has learned, in half of the streams. A price that is
            best where nothing ever changes lets requests pile up on the quickest nodes, and fails when these become
            slower; one that is best where all varies gives away what the quickest nodes are worth today.
    """
    half = None if randomisation is None else replace(randomisation, share=0.5)
    rule = tunable(rules)
    plain = numbers_of(rules[rule])

    @jax.jit
    def play(windows: Windows, model: AnswerModel, params: PyTree, keys: Array) -> Array:
        def one(params: PyTree, key: Array) -> Array:
            policy = greedy_policy(rule_actor(rule), params)
            episodes = twin.played(key, policy, num_streams, windows=windows, model=model, randomisation=half)
            return weighted_mean(episodes.reward, episodes.active.astype(jnp.float32))

        return jax.vmap(one)(params, keys)

    episodes = jax.tree.map(jnp.asarray, windows)

    def best_of(key: Array, candidates: list[PyTree], num_before: float = 0.0) -> tuple[PyTree, Tuned]:
        def shown(done: float, total: float | None = None, text: str = "") -> None:
            stage(num_before + done, num_before + total if total else None, text)

        tuned = successive_halving(
            key, lambda *arguments: play(episodes, model, *arguments), candidates, shown
        )
        return candidates[tuned.best], tuned

    candidates = _candidates(rule, plain)
    best, tuned = best_of(key, candidates)
    num_before, cluster = float(len(candidates).bit_length() - 1), twin.encoding.cluster
    tolls = [_with_tolls] if _is_crowded(plain) or cluster.pace is not None else []
    transfers = [_with_transfers] if cluster.shared_waits else []
    for varied in (*tolls, *transfers):
        key, further = jax.random.fold_in(key, len(candidates)), varied(rule, [best, rules[rule]])
        best, tuned = best_of(key, further, num_before)
        num_before += len(further).bit_length() - 1
    return {TUNED[rule]: best}, tuned


def tunable(rules: Mapping[str, PyTree]) -> str:
    """The rule that is tuned: the first that a log supports."""
    return next(rule for rule in TUNED if rule in rules)


def _is_crowded(plain: Mapping[str, Array]) -> bool:
    return bool(jnp.any(plain["crowding"] > 0.0))


def _with_tolls(rule: str, tuned: Sequence[PyTree]) -> list[PyTree]:
    """Each of some parameters of the rule with every toll."""
    return [
        {"params": {rule: {**numbers_of(params), "toll": jnp.float32(toll)}}}
        for params in tuned
        for toll in TOLLS
    ]


def _with_transfers(rule: str, tuned: Sequence[PyTree]) -> list[PyTree]:
    """Each of some parameters of the rule with every factor of what transfers take."""
    names = ("latency", "per_mib")
    return [
        {"params": {rule: {**numbers, **{name: jnp.float32(factor) * numbers[name] for name in names}}}}
        for numbers in map(numbers_of, tuned)
        for factor in TRANSFERS
    ]


def _candidates(rule: str, plain: Mapping[str, Array]) -> list[PyTree]:
    """Parameters of the rule around the numbers that the log gave."""
    prices, crowdings = (CROWDED_PRICES, CROWDINGS) if _is_crowded(plain) else (PRICES, CROWDINGS[:1])
    return [
        {
            "params": {
                rule: {
                    **plain,
                    **{name: factor * plain[name] for name in SCALED[rule]},
                    "price": jnp.float32(price),
                    "crowding": crowding * plain["crowding"],
                }
            }
        }
        for factor in FACTORS
        for crowding in crowdings
        for price in prices
    ]


def rule_policy(params: PyTree) -> Policy:
    """The rule of these parameters as a policy."""
    (rule,) = params["params"]
    return greedy_policy(rule_actor(rule), params)
