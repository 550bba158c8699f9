"""What every problem and response must keep to, whatever it is about: one table of cases, one set of tests.

All problems that are exported are here, and the toys. A new problem joins by one more `Case`: with chance, without
chance, and one whose episodes end early.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.toys import SPEED, toy_problem, toy_response
from tests.twin.exported import batches, deployments, frames, joint, queue, slots
from tests.twin.mechanical import mechanical
from twin.contracts import Environment, Given, Interval, Records, Trajectory
from twin.environment import environment
from twin.legality import choose_legal, leaves_of, like_action
from twin.rollout import credit, follow, rollout

NUM_STREAMS = 3
KEY = jax.random.key(11)


class Case(NamedTuple):
    """One problem under test."""

    name: str
    drawn: Callable[[], Environment]  # with chance
    fixed: Callable[[], Environment]  # without chance: streams differ by their actions alone
    ending: Callable[[], Environment]  # done in every stream before `num_steps - 1`
    num_steps: int
    rounding: float = 1e-6  # relative difference of one program compiled in two ways


CASES = [
    Case(
        "toy",
        lambda: environment(toy_problem(), toy_response(length=50)),
        lambda: environment(toy_problem(), toy_response(length=50, drawn=False)),
        lambda: environment(toy_problem(), toy_response(length=4)),
        num_steps=7,
    ),
    Case(
        "toy that resolves what is pending",
        lambda: environment(toy_problem(), toy_response(length=50, resolves_pending=True)),
        lambda: environment(toy_problem(), toy_response(length=50, resolves_pending=True, drawn=False)),
        lambda: environment(toy_problem(), toy_response(length=4, resolves_pending=True)),
        num_steps=7,
    ),
    Case(
        "placement",
        lambda: mechanical(length=50, depth=8),
        lambda: mechanical(length=50, drawn=False, depth=8),
        lambda: mechanical(length=4, depth=8),
        num_steps=7,
    ),
    Case("ordering", lambda: queue(30), lambda: queue(30, drawn=False), lambda: queue(3), num_steps=16),
    Case("slots", slots, lambda: slots(drawn=False), lambda: slots(4), num_steps=7),
    Case("joint", joint, lambda: joint(drawn=False), lambda: joint(4), num_steps=9),
    Case("frames", frames, lambda: frames(drawn=False), lambda: frames(2), num_steps=5),
    Case(
        "autoscaling",
        lambda: deployments(50),
        lambda: deployments(50, drawn=False),
        lambda: deployments(4),
        num_steps=7,
        rounding=0.05,  # stations near overload amplify float32's rounding to 3 %; in float64 they agree to 1e-11
    ),
    Case("batches", lambda: batches(50), lambda: batches(50, drawn=False), lambda: batches(4), num_steps=7),
]


def of_cases(*quick: str):
    """Every case, those of other names in the slow tests."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "case", [pytest.param(c, id=c.name, marks=() if c.name in quick else slow) for c in CASES]
    )


every_case = of_cases("toy", "placement")


def any_action(_key, _observation, legal):
    """The last choice everywhere, often illegal; numbers above their interval."""

    def last(entry, num_before):
        if isinstance(entry, Interval):
            return entry.high + 0.5
        return jnp.full(entry.shape[num_before:], entry.shape[0] - 1, jnp.int32)

    return like_action(legal, [last(*one) for one in entries_of(legal)])


def entries_of(legal):
    """The mask or `Interval` of every action leaf, and how many of a mask's axes come before seats: 2 where it is
    `Given` a choice."""
    return [(one.table, 2) if isinstance(one, Given) else (one, 1) for one in leaves_of(legal)]


@functools.cache
def random_actions(case: Case, streams=(NUM_STREAMS,)):
    """Random choices and numbers for every step, seat and stream, whether legal or not; some are no choices at all."""
    built = case.fixed()
    legal = jax.eval_shape(lambda: built.problem.legal(built.reset(KEY, ()).problem))
    rng = np.random.default_rng(0)

    def draw(entry, num_before):
        if isinstance(entry, Interval):
            return rng.normal(0.0, 2.0, (case.num_steps, *entry.low.shape, *streams)).astype(np.float32)
        shape = (case.num_steps, entry.shape[num_before], *streams)
        return rng.integers(0, entry.shape[0] + 1, shape).astype(np.int32)

    return like_action(legal, [draw(*one) for one in entries_of(legal)])


@functools.cache
def along(make: Callable[[], Environment]):
    """The jitted trajectory along actions, compiled once for each environment."""
    built = make()
    return jax.jit(lambda actions: follow(KEY, built, actions, (NUM_STREAMS,)))


@functools.cache
def anywhere(case: Case):
    """The jitted trajectory of a key under `any_action`, and how often the policy was traced."""
    built, traced = case.drawn(), []

    def policy(key, observation, legal):
        traced.append(1)
        return any_action(key, observation, legal)

    return jax.jit(lambda key: rollout(key, built, policy, case.num_steps, (NUM_STREAMS,))), traced


BY_SEAT = (
    "observation", "legal", "active", "action", "reward", "settled", "decision_info", "outcome", "illegal",
)  # fmt: skip
"""What a trajectory holds by seat: with groups a mapping from their names."""


def groups_of(built: Environment, trajectory: Trajectory) -> list[tuple[str, int, Trajectory]]:
    """Name, number of seats and part of every group, all steps kept; one without a name where there are no groups."""
    if not built.problem.groups:
        return [("", built.problem.num_seats, trajectory)]
    return [
        (name, seats, trajectory._replace(**{part: getattr(trajectory, part)[name] for part in BY_SEAT}))
        for name, seats in built.problem.groups.items()
    ]


def assert_same(left, right, **tolerance) -> None:
    for one, two in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(two), **tolerance)


def streams_of(tree, chosen):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[..., chosen], tree)


@every_case
def test_same_key_same_bits_other_key_other_bits_and_no_second_trace(case):
    unroll, traced = anywhere(case)
    one, num_traces = unroll(KEY), len(traced)
    two, other = unroll(jax.random.key(11)), unroll(jax.random.key(12))
    assert len(traced) == num_traces
    assert_same(one, two, rtol=0, atol=0)
    # Time alone may be fixed, as in slots
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    assert not all(np.array_equal(left, right) for left, right in pairs)


@every_case
def test_shapes_are_as_the_contract_says(case):
    built, streams = case.drawn(), (NUM_STREAMS,)
    trajectory = anywhere(case)[0](KEY)
    groups = groups_of(built, trajectory)
    assert sum(seats for _, seats, _ in groups) == built.problem.num_seats
    for _, seats, part in groups:
        decisions = (case.num_steps, seats, *streams)
        for leaf in [
            part.active,
            part.reward,
            part.settled,
            part.illegal,
            *jax.tree.leaves(part.outcome),
            *jax.tree.leaves(part.action),
        ]:
            assert leaf.shape == decisions
        for leaf in jax.tree.leaves((part.observation, part.legal, part.decision_info)):
            assert leaf.shape[0] == case.num_steps
            assert leaf.shape[-2:] == (seats, *streams)
        assert np.all(np.isfinite(part.reward))
    for leaf in jax.tree.leaves(trajectory.global_observation):
        assert leaf.shape[0] == case.num_steps + 1
        assert leaf.shape[-1:] == streams
    assert trajectory.elapsed_s.shape == trajectory.done.shape == (case.num_steps, *streams)


@of_cases("toy")
def test_illegal_actions_are_replaced_and_flagged_and_legal_ones_kept(case):
    asked = random_actions(case)
    for name, _, trajectory in groups_of(case.fixed(), along(case.fixed)(asked)):
        assert_legalised(asked[name] if name else asked, trajectory)


def assert_legalised(asked, trajectory):
    flagged = np.zeros(trajectory.illegal.shape, bool)
    before = None
    for ask, took, (legal, num_before) in zip(
        *map(jax.tree.leaves, (asked, trajectory.action)), entries_of(trajectory.legal), strict=True
    ):
        if isinstance(legal, Interval):
            np.testing.assert_array_equal(took, np.clip(ask, legal.low, legal.high))
            flagged |= np.asarray(took) != ask
            continue
        ask, took, legal = np.asarray(ask), np.asarray(took), np.asarray(legal)
        for place in np.ndindex(ask.shape):
            given = () if num_before == 1 else (before[place],)
            possible = np.flatnonzero(legal[(place[0], slice(None), *given, *place[1:])])
            if ask[place] in possible:
                assert took[place] == ask[place]
            else:
                assert took[place] == (possible[0] if len(possible) else 0)
                flagged[place] = True
        before = took
    np.testing.assert_array_equal(trajectory.illegal, flagged & np.asarray(trajectory.active))
    assert trajectory.illegal.any()


@of_cases("toy")
def test_a_done_stream_changes_no_more(case):
    built, actions = case.ending(), random_actions(case)
    step = jax.jit(built.step)
    state = jax.jit(lambda: built.reset(KEY, (NUM_STREAMS,)))()
    num_frozen, keys = 0, jax.random.split(KEY, case.num_steps)
    for index in range(case.num_steps):
        action = jax.tree.map(lambda leaf, index=index: leaf[index], actions)
        following, transition = step(keys[index], state, action)
        done = np.flatnonzero(state.done)
        num_frozen += len(done)
        assert np.all(np.asarray(following.done)[done])
        assert np.all(np.asarray(transition.elapsed_s)[done] == 0)
        assert not any(np.asarray(leaf)[:, done].any() for leaf in jax.tree.leaves(transition.illegal))
        for left in transition.left.values() if built.problem.groups else [transition.left]:
            assert np.all(np.asarray(left.decision)[:, done] < 0)
        assert_same(streams_of(following.problem, done), streams_of(state.problem, done), rtol=0, atol=0)
        state = following
    assert np.all(state.done)
    assert num_frozen > 0
    for _, _, trajectory in groups_of(built, along(case.ending)(actions)):
        over = np.asarray(trajectory.done)[:-1]
        assert not np.any(np.asarray(trajectory.active)[1:] & over[:, None])
        after = np.broadcast_to(over[:, None], trajectory.active[1:].shape)
        assert np.all(np.asarray(trajectory.reward)[1:][after] == 0)


@every_case
def test_permuting_streams_permutes_results(case):
    actions, order, run = random_actions(case), np.array([2, 0, 1]), along(case.fixed)
    assert_same(run(streams_of(actions, order)), streams_of(run(actions), order), rtol=1e-6)


@of_cases("toy")  # of placement: tests/twin/test_invariances.py
def test_one_stream_alone_vmapped_or_beside_others_is_the_same(case):
    actions, built = random_actions(case), case.fixed()
    beside = along(case.fixed)(actions)
    alone = jax.jit(lambda actions: follow(KEY, built, actions, ()))
    mapped = jax.jit(jax.vmap(lambda actions: follow(KEY, built, actions, ()), in_axes=-1, out_axes=-1))(
        actions
    )
    assert_same(beside, mapped, rtol=case.rounding)
    for stream in range(NUM_STREAMS):
        assert_same(streams_of(beside, stream), alone(streams_of(actions, stream)), rtol=case.rounding)


@of_cases("toy")
def test_a_longer_rollout_begins_as_the_shorter_one(case):
    """Nothing decided later changes what was seen before; at most more is settled."""
    actions, run = random_actions(case), along(case.fixed)
    short = case.num_steps - 2
    long = run(actions)
    cut = run(jax.tree.map(lambda leaf: leaf[:short], actions))
    for field in (
        "observation",
        "legal",
        "active",
        "action",
        "elapsed_s",
        "done",
        "illegal",
        "decision_info",
    ):
        first = jax.tree.map(lambda leaf: leaf[:short], getattr(long, field))
        assert_same(getattr(cut, field), first, rtol=1e-6)
    parts = [groups_of(case.fixed(), one) for one in (long, cut)]
    for (_, _, longer), (_, _, shorter) in zip(*parts, strict=True):
        settled = np.asarray(shorter.settled)
        assert np.all(np.asarray(longer.settled)[:short][settled])
        np.testing.assert_allclose(
            np.asarray(longer.reward)[:short][settled], np.asarray(shorter.reward)[settled], rtol=1e-6
        )


@pytest.mark.parametrize("streams", [(), (4,), (2, 3)])
def test_credit_brings_every_outcome_home(streams):
    num_steps, num_seats, rng = 6, 2, np.random.default_rng(1)
    total = num_steps * num_seats
    width = int(np.prod(streams, dtype=int))
    settled, value = np.zeros((total, width), bool), np.full((total, width), np.nan, np.float32)
    code = np.full((total, width), -1, np.int32)
    passed = np.full((num_steps, 3, width), -1, np.int32)  # three rows a step, most of them empty
    held = np.full((5, width), -2, np.int32)
    final = {name: np.zeros((num_steps, 3, width)) for name in ("settled", "value", "code")}
    kept = {name: np.zeros((5, width)) for name in ("settled", "value", "code")}
    for stream in range(width):
        decisions = rng.permutation(total)[:9]  # some are never heard of
        places = rng.permutation(num_steps * 3 + 5)[:9]
        for decision, place in zip(decisions, places, strict=True):
            facts = {"settled": rng.random() < 0.5, "value": rng.normal(), "code": rng.integers(5)}
            row = (
                (place // 3, place % 3, stream) if place < num_steps * 3 else (place - num_steps * 3, stream)
            )
            store, numbers = (final, passed) if place < num_steps * 3 else (kept, held)
            numbers[row] = decision
            for name, fact in facts.items():
                store[name][row] = fact
            settled[decision, stream] = facts["settled"]
            value[decision, stream], code[decision, stream] = facts["value"], facts["code"]
    passed[0, 0, :] = np.where(passed[0, 0] < 0, total + 3, passed[0, 0])  # beyond the end: dropped

    def records(numbers, facts, lead):
        def shape(leaf, dtype):
            return leaf.astype(dtype).reshape((*lead, *streams))

        outcome = {"code": shape(facts["code"], np.int32), "value": shape(facts["value"], np.float32)}
        return Records(shape(numbers, np.int32), shape(facts["settled"], bool), outcome)

    active = np.ones((num_steps, num_seats, *streams), bool)
    known, outcome = jax.jit(credit)(
        records(passed, final, (num_steps, 3)), records(held, kept, (5,)), active
    )
    np.testing.assert_array_equal(known, settled.reshape(active.shape))
    np.testing.assert_array_equal(outcome["value"], value.reshape(active.shape))
    np.testing.assert_array_equal(outcome["code"], code.reshape(active.shape))


def test_choose_legal_takes_the_first_legal_choice():
    legal = jnp.array([[False, True, False], [True, True, False], [True, False, False]])  # [choices, seats]
    chosen, replaced = choose_legal(jnp.array([0, 1, 2]), legal)
    np.testing.assert_array_equal(chosen, [1, 1, 0])
    np.testing.assert_array_equal(replaced, [True, False, True])


def test_late_toy_outcomes_are_credited_to_the_batch_that_earned_them():
    """Response times by hand in NumPy, from the batches and actions alone."""
    case = CASES[1]
    trajectory = jax.tree.map(np.asarray, along(case.fixed)(random_actions(case)))
    assert trajectory.settled.all()
    batch, action = trajectory.global_observation, trajectory.action
    for step, stream in np.ndindex(case.num_steps, NUM_STREAMS):
        served = sorted(range(2), key=lambda seat: (-action["urgent"][step, seat, stream], seat))
        busy, response_s = batch.backlog_s[step, :, stream].copy(), np.zeros(2)
        for seat in served:
            edge = action["edge"][step, seat, stream]
            busy[edge] += batch.size[step, seat, stream] / SPEED[edge]
            response_s[seat] = busy[edge]
        np.testing.assert_allclose(trajectory.outcome.response_s[step, :, stream], response_s, rtol=1e-6)
        cost = max(batch.weight[step, :, stream] * response_s) + 0.1 * action["urgent"][step, :, stream].sum()
        assert -trajectory.reward[step, :, stream].sum() == pytest.approx(cost, rel=1e-5)


def test_what_is_not_due_at_truncation_stays_unsettled_unless_foretold():
    plain, told = (along(case.fixed)(random_actions(case)) for case in (CASES[0], CASES[1]))
    # Batch k is revealed 1 + k % 3 steps after its decision; of 7 batches, number 5 falls due at step 8.
    expected = np.array([step + 1 + step % 3 <= 7 for step in range(7)])
    np.testing.assert_array_equal(plain.settled[:, 0, 0], expected)
    assert np.isnan(plain.outcome.response_s[~expected]).all()
    assert told.settled.all()
    np.testing.assert_array_equal(plain.outcome.response_s[expected], told.outcome.response_s[expected])
