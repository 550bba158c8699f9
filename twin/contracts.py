"""Problem x Response = Environment: the five words everything else is built from.

A `Problem` is exact bookkeeping: what the state is, what may be observed, which actions are legal, how what was
observed changes the state, what a settled decision is worth. It contains no chance and no particular cluster.
A `Response` is the only source of chance: from one decision to the next, what happened and the next requests. Its own
state is private; it reveals a thing when it becomes observable, not before.
`twin.environment.environment(problem, response)` joins them and owns every invariant.

Axes. Per-cluster axes come first (features, resources, nodes, slots, seats) and any number of stream axes follow,
written `*streams`. A stream is one independent copy of the system. The same function is thus the readable
single-stream rule (`streams = ()`) and the fast batched one (`streams = (256,)`). A *seat* takes one decision of
a step: slot mode has a seat per site, event mode and batch clusters have one. Seats that have nothing to decide are
inactive. A problem may have several *groups* of seats (`Problem.groups`): then everything by seat is a mapping from
group to what is defined here for one, and decisions are numbered within their group (`twin.groups`).

Time is in seconds since the start of the episode (float32: exact to 8 ms within a day).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

Array = jax.Array
PyTree = Any
Streams = tuple[int, ...]


class Outcome(NamedTuple):
    """What a Response reveals between one decision and the next."""

    elapsed_s: Array  # [*streams], >= 0: time from this decision to the next one
    terminated: Array  # [*streams] bool: the episode is over for good: nothing is earned after it
    truncated: Array  # [*streams] bool: no further decision follows here, but the system it models goes on
    observed_events: PyTree  # of the problem's own kind: answers, starts, finishes, the next requests
    # leaves [..., seats, *streams]: what the answers depended on and no policy observes
    response_aux: PyTree = None


class Records(NamedTuple):
    """Outcomes of decisions, padded: `decision < 0` marks an empty row (or one carried in from before the episode)."""

    decision: Array  # [rows, *streams] int32: step * num_seats + seat
    settled: Array  # [rows, *streams] bool: the outcome is final
    outcome: PyTree  # leaves [rows, *streams], of the problem's own kind


class Interval(NamedTuple):
    """Legality of a continuous action leaf: all numbers from `low` to `high`; where they meet it is fixed."""

    low: Array  # [seats, *streams]
    high: Array  # [seats, *streams]


class Given(NamedTuple):
    """What belongs to an action leaf and depends on the choice of the leaf before it, in tree order."""

    table: PyTree  # as without it, but for one more axis, of the choices before: [..., choices before, seats, *streams]


class Problem(NamedTuple):
    """Exact bookkeeping; every member is a pure function of arrays."""

    num_seats: int  # of all groups together
    start: Callable[[Outcome], PyTree]  # first outcome -> state
    # state -> what each seat's site may observe; leaves [..., seats, *streams]
    observe: Callable[[PyTree], PyTree]
    observe_global: Callable[[PyTree], PyTree]  # state -> what a centralised critic may observe
    # state -> beside every action leaf a mask [choices, seats, *streams], an `Interval`, or either `Given`
    legal: Callable[[PyTree], PyTree]
    active: Callable[[PyTree], Array]  # state -> [seats, *streams] bool: seats that must decide
    # (state, action, outcome, decision[seats, *streams]) -> next state, the records that left the state
    apply: Callable[[PyTree, PyTree, Outcome, Array], tuple[PyTree, Records]]
    remaining: Callable[[PyTree], Records]  # state -> the records still held by it, settled or not
    # (state, action) -> what is known of decisions when they are taken and needed to value them; leaves
    # [..., seats, *streams]
    decision_info: Callable[[PyTree, PyTree], PyTree]
    # (decision_info, outcome) -> worth of each decision, any shared batch axes
    reward: Callable[[PyTree, PyTree], Array]
    # `apply` itself leaves streams alone whose decision is -1 (else the environment does)
    keeps_done: bool = False
    groups: Mapping[str, int] = MappingProxyType({})  # seats of every group, where there are several


class Response(NamedTuple):
    """The only source of chance: a learned, replayed, hybrid or mechanistic answer to decisions."""

    init: Callable[[Array, Streams], tuple[PyTree, Outcome]]  # (key, streams) -> private state, first outcome
    # (key, private state, problem state, action) -> private state, outcome
    advance: Callable[[Array, PyTree, PyTree, PyTree], tuple[PyTree, Outcome]]
    # (private state, problem state) -> problem state with every fate that is already drawn filled in, to credit
    # decisions that are unfinished at truncation; never observed. A response without such fates returns the state.
    resolve_pending: Callable[[PyTree, PyTree], PyTree]


class EnvironmentState(NamedTuple):
    """All of one environment: the public bookkeeping, the private response, and where the episode stands."""

    problem: PyTree
    response: PyTree
    step: Array  # [] int32: steps since reset
    done: Array  # [*streams] bool: terminated or truncated
    terminated: Array  # [*streams] bool


class Transition(NamedTuple):
    """What one step returns besides the next state."""

    action: PyTree  # leaves [seats, *streams]: the action taken, after illegal ones were replaced
    elapsed_s: Array  # [*streams]
    terminated: Array  # [*streams] bool: the episode ended for good with this step
    done: Array  # [*streams] bool: the episode is over after this step, terminated or truncated
    illegal: Array  # [seats, *streams] bool: the action was illegal and replaced by the first legal one
    decision_info: PyTree  # leaves [..., seats, *streams]: `Problem.decision_info` of the action taken
    left: Records  # the records that left the state in this step
    response_aux: PyTree = None  # leaves [..., seats, *streams]: `Outcome.response_aux` of the action taken


class Environment(NamedTuple):
    """A steppable system. Twin and truth differ in exactly one argument, so a policy cannot distinguish them."""

    problem: Problem
    reset: Callable[[Array, Streams], EnvironmentState]  # (key, streams)
    # (key, state, action)
    step: Callable[[Array, EnvironmentState, PyTree], tuple[EnvironmentState, Transition]]
    settle: Callable[[EnvironmentState], Records]  # the records still held, fates already drawn filled in


Policy = Callable[[Array, PyTree, PyTree], PyTree]
"""(key, observation, legal) -> action. A policy gets its site's observation and nothing else."""


class Trajectory(NamedTuple):
    """One rollout: `T` steps of `num_seats` seats in every stream; late outcomes are credited to their decision."""

    observation: PyTree  # leaves [T, ..., seats, *streams]
    global_observation: PyTree  # leaves [T + 1, ..., *streams]; for bootstrapping what follows a step
    legal: PyTree  # leaves [T, ..., seats, *streams], see `Problem.legal`
    active: Array  # [T, seats, *streams] bool
    action: PyTree  # leaves [T, seats, *streams]: as taken, after illegal ones were replaced
    # [T, seats, *streams]: worth of the decision's own outcome, 0 where not settled or not active
    reward: Array
    settled: Array  # [T, seats, *streams] bool: the outcome is final (or its fate already drawn)
    # leaves [T, ..., seats, *streams]: what was known of every decision when it was taken
    decision_info: PyTree
    outcome: PyTree  # leaves [T, seats, *streams]: what came of it, however late; as far as known where not settled
    elapsed_s: Array  # [T, *streams]: time to the next decision
    # [T, *streams] bool: the episode ended for good with this step: its value after it is 0
    terminated: Array
    done: Array  # [T, *streams] bool: the episode is over after this step; what follows is padding
    illegal: Array  # [T, seats, *streams] bool
    # leaves [T, ..., seats, *streams]: `Outcome.response_aux`; never shown to a policy
    response_aux: PyTree = None
