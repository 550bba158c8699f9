"""Single rules of the runner that whole episodes hardly touch, by hand; no JAX."""

from dataclasses import replace

import pytest

from offline_rl.runner import Held, Node, Request
from offline_rl.runner.features import LOAD
from offline_rl.runner.reading import candidates_of
from tests.serving.bundles import drawn_policy
from tests.serving.making import NAMES
from tests.serving.test_books import COLD, MOVING

NODES = tuple(map(Node, NAMES))


def test_what_begins_later_waits_until_then() -> None:
    policy, held = drawn_policy(), Held(1.0, 5.0, 10.0, "resize", 2.0)
    for clock_s, running in ((3.0, 0.0), (5.0, 1.0), (7.0, 1.0)):
        _, load, _ = policy.read([replace(NODES[0], held=[held]), *NODES[1:]], clock_s)
        told = dict(zip(LOAD, load[:, 0].tolist(), strict=True))
        assert (told["num_running"], told["num_waiting"]) == (running, 1.0 - running)
        assert (told["used_cpu_cores"], told["waiting_cores"]) == (2.0 * running, 2.0 - 2.0 * running)
        assert told["core_seconds_left"] == 2.0 * (10.0 - max(clock_s - 5.0, 0.0))
        assert told["oldest_wait_s"] == (0.0 if running else clock_s - 1.0)


def test_a_set_of_candidates_never_seen_is_shown_as_the_smallest_around_it() -> None:
    known = [list(NAMES), list(NAMES[:3]), list(NAMES[:2]), list(NAMES[1:])]
    policy = drawn_policy(candidate_sets=known)
    for names, shown in ((NAMES[:1], NAMES[:2]), (NAMES[2:3], NAMES[:3]), (NAMES[:2], NAMES[:2])):
        may, seen = candidates_of(names, policy.table_of(NODES), policy.setting, bound=True)
        assert may.tolist() == [name in names for name in NAMES]
        assert seen.tolist() == [name in shown for name in NAMES]


def test_requests_are_unlike_training_by_what_they_say_and_not_by_what_nodes_hold() -> None:
    policy = drawn_policy()
    full = [replace(NODES[0], recent_wait_s=1e15, recent_starts=1.0), *NODES[1:]]
    asked = Request(service="resize", site="zone-a")
    assert (
        policy.decide(full, asked, 0.0).num_out_of_range > policy.decide(NODES, asked, 0.0).num_out_of_range
    )
    assert not policy.decide(full, asked, 0.0).unlike
    assert policy.decide(NODES, replace(asked, service="strange"), 0.0).unlike
    assert policy.decide(NODES, replace(asked, input_mib=1e12), 0.0).unlike


@pytest.mark.parametrize(("hazard", "learns"), [([], True), ([0.1] * 4, False)])
def test_failed_runs_tell_of_run_times_where_nodes_do_not_lose_them(
    hazard: list[float], learns: bool
) -> None:
    ledger = drawn_policy(run_dynamics=MOVING, hazard=hazard).ledger(NODES, 0.0)
    for number, failed in enumerate((True, False)):
        ledger.hold(number, "node-1", Held(0.0, 0.0, 5.0, "resize"))
        ledger.finish(number, 20.0, failed=failed)
        ledger.load(20.0 + number)
        units = ledger.table_for(Request(service="resize"), 20.0 + number).facts.run_units
        assert (units[1, 1] > 1.0) == (learns or not failed)
        assert units[1, 0] == 1.0  # another node


def test_nothing_is_learned_of_a_run_of_which_nobody_knows_whether_it_began_cold() -> None:
    ledger = drawn_policy(cold_starts=COLD, run_dynamics=MOVING).ledger(NODES, 0.0)
    asked, levels = Request(service="detect"), []
    for number in range(2):
        at_s = 10.0 * number
        ledger.decide(asked, at_s)
        ledger.hold(number, "node-1", Held(at_s, at_s, 5.0, "detect"))
        ledger.finish(number, at_s + 9.0)
        ledger.load(at_s + 9.5)
        assert ledger._levels is not None
        levels.append(float(ledger._levels.of(2)[1]))
    assert levels[0] == 0.0
    assert levels[1] > 0.1  # it has run there before
