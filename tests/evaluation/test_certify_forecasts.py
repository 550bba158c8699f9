"""One-step forecasts against logs whose law is known: right ones pass, planted faults fail their own line."""

import numpy as np
import pytest

from evaluation.certify.biases import bias_lines, bias_over_groups
from evaluation.certify.calibrated import calibration_lines
from evaluation.certify.config import CertifyConfig
from evaluation.certify.elsewhere import waiting_on
from evaluation.certify.family import settled
from evaluation.certify.forecasting import Forecast, ranks
from evaluation.certify.lines import Verdict
from evaluation.certify.model_class import after_start, model_class_lines
from evaluation.certify.reactions import NAME as REACTION
from evaluation.certify.reactions import reaction_line
from twin.placement.types import COMPLETED, REJECTED

QUICK = CertifyConfig(num_replicates=200)
NUM_ROWS, NUM_DRAWS, NUM_NODES, NUM_UNITS = 6_000, 40, 4, 24
NUM_AGENTS, DEADLINE_S = 30, 60.0
MEAN_LOG_RUN = np.array([3.0, 3.4, 3.8, 3.2])

RUNS = "bias of log run time over nodes, squared"
WAITS = "log of mean wait over mean forecast"
ACCEPTANCE = "bias of acceptance"
PERSISTENCE = "persistence of run time residuals on a node"
OVER_ALL = "persistence of run time residuals over all nodes"
BESIDE = "run time residuals against requests that come during the run"
COLD = "run time residuals against the time since the service last ran on the node"
ELSEWHERE = "run time residuals against what other nodes have to do"
WAITS_ELSEWHERE = "wait residuals against what waits on other nodes"


def made(seed: int = 0) -> Forecast:
    """A day of requests on four nodes and right forecasts of them; nothing ever queues, so waits are drawn too."""
    random = np.random.default_rng(seed)
    arrival_s = np.sort(random.uniform(0.0, 86_400.0, NUM_ROWS))
    node = random.integers(NUM_NODES, size=NUM_ROWS)

    def runs(*shape):
        return np.exp(
            MEAN_LOG_RUN[node].reshape((-1,) + (1,) * len(shape))
            + 0.4 * random.normal(size=(NUM_ROWS, *shape))
        )

    def waits(*shape):
        return np.exp(random.normal(size=(NUM_ROWS, *shape)))

    accepted = random.random(NUM_ROWS) < 0.8
    unknown = np.where(accepted, 0.0, np.nan)
    draws_accepted = random.random((NUM_ROWS, NUM_DRAWS)) < 0.8
    return Forecast(
        arrival_s=arrival_s, day=np.zeros(NUM_ROWS, int), unit=np.arange(NUM_ROWS) * NUM_UNITS // NUM_ROWS,
        num_units=NUM_UNITS, node=node, service=np.zeros(NUM_ROWS, int),
        agent=random.integers(NUM_AGENTS, size=NUM_ROWS), deadline_s=np.full(NUM_ROWS, DEADLINE_S),
        accepted=accepted,
        known=np.ones(NUM_ROWS, bool), status=np.where(accepted, COMPLETED, REJECTED),
        wait_s=waits() + unknown, run_s=runs() + unknown, draws_accepted=draws_accepted,
        draws_status=np.where(draws_accepted, COMPLETED, REJECTED),
        draws_wait_s=waits(NUM_DRAWS), draws_run_s=runs(NUM_DRAWS),
    )  # fmt: skip


def verdicts(told: Forecast) -> dict[str, Verdict]:
    lines = [*bias_lines(told, QUICK), *calibration_lines(told, QUICK)[0], *model_class_lines(told, QUICK)]
    lines.append(reaction_line(told, QUICK))
    return {line.name: line.verdict for line in settled(lines, 1)}


def slow_for_an_hour(told: Forecast) -> Forecast:
    """Every second hour all runs of a node take half as long again; its mean stays what it was."""
    slow = ((told.arrival_s // 3600).astype(int) + told.node) % 2
    return told._replace(run_s=told.run_s * np.where(slow, 1.25, 0.8))


def large_for_a_while(told: Forecast) -> Forecast:
    """For ten minutes of every half hour all that arrives is a third larger, wherever it runs."""
    large = (told.arrival_s // 600).astype(int) % 3 == 0
    return told._replace(run_s=told.run_s * np.where(large, 1.4, 0.85))


def shared(told: Forecast) -> Forecast:
    """Every request that comes to a node while another runs there makes that one longer."""
    start_s, run_s = told.arrival_s + told.wait_s, told.run_s.copy()
    for node in range(NUM_NODES):
        here = np.flatnonzero((told.node == node) & told.accepted)
        came = np.searchsorted(told.arrival_s[here], start_s[here] + told.run_s[here])
        came -= np.searchsorted(told.arrival_s[here], start_s[here])
        run_s[here] *= np.exp(0.3 * (came - came.mean()))
    return told._replace(run_s=run_s)


def cold(told: Forecast) -> Forecast:
    """A run on a node where none has ended for a while takes twice as long."""
    start_s, run_s = told.arrival_s + told.wait_s, told.run_s.copy()
    for node in range(NUM_NODES):
        here = np.flatnonzero((told.node == node) & told.accepted)
        ends = np.sort(told.finish_s[here])
        last = np.searchsorted(ends, start_s[here]) - 1
        idle_s = start_s[here] - ends[np.maximum(last, 0)]
        run_s[here] *= np.where(idle_s > np.median(idle_s), 1.4, 0.7)
    return told._replace(run_s=run_s)


def racked(told: Forecast) -> Forecast:
    """Two nodes each share their power: a run takes the longer the more run on the other one as it begins."""
    start_s, run_s = told.arrival_s + told.wait_s, told.run_s.copy()
    for node in range(NUM_NODES):
        here, partner = (np.flatnonzero((told.node == one) & told.accepted) for one in (node, node ^ 1))
        beside = np.searchsorted(np.sort(start_s[partner]), start_s[here]).astype(float)
        beside -= np.searchsorted(np.sort(told.finish_s[partner]), start_s[here])
        run_s[here] *= np.exp(0.2 * (beside - beside.mean()))
    return told._replace(run_s=run_s)


def linked(told: Forecast) -> Forecast:
    """Waits are twenty times as long, and the longer the more requests wait on other nodes."""
    told = told._replace(wait_s=20.0 * told.wait_s, draws_wait_s=20.0 * told.draws_wait_s)
    waits = waiting_on(np.arange(NUM_NODES), told)
    beside = (waits.sum(axis=1) - waits[np.arange(NUM_ROWS), told.node]).astype(float)
    return told._replace(wait_s=told.wait_s * np.exp(0.3 * (beside - beside.mean())))


def swapped(told: Forecast) -> Forecast:
    factor = np.exp((MEAN_LOG_RUN[[0, 2, 1, 3]] - MEAN_LOG_RUN)[told.node])
    return told._replace(draws_run_s=told.draws_run_s * factor[:, None])


def halved(told: Forecast) -> Forecast:
    return told._replace(draws_wait_s=0.5 * told.draws_wait_s)


def refused_oftener(told: Forecast) -> Forecast:
    random = np.random.default_rng(5)
    return told._replace(
        draws_accepted=told.draws_accepted & (random.random(told.draws_accepted.shape) < 0.875)
    )


def resentful(told: Forecast) -> Forecast:
    """Agents refuse a third of what they accepted otherwise, as long as their last request was refused or late."""
    random, accepted, ill = np.random.default_rng(6), told.accepted.copy(), np.zeros(NUM_AGENTS, bool)
    hurt = random.random(NUM_ROWS) < 1.0 / 3.0
    for row, agent in enumerate(told.agent):
        accepted[row] &= ~(ill[agent] & hurt[row])
        ill[agent] = not accepted[row] or told.wait_s[row] + told.run_s[row] > DEADLINE_S
    share = accepted.mean() / told.accepted.mean()  # the twin has the mean right
    kept = random.random(told.draws_accepted.shape) < share
    unknown = np.where(accepted, 0.0, np.nan)
    return told._replace(
        accepted=accepted,
        status=np.where(accepted, COMPLETED, REJECTED),
        wait_s=told.wait_s + unknown,
        run_s=told.run_s + unknown,
        draws_accepted=told.draws_accepted & kept,
    )


@pytest.mark.parametrize("num_agents", [30, 290])
def test_agents_who_ask_seldom_do_not_pass_for_resentful(num_agents):
    told = made()
    told = told._replace(agent=np.random.default_rng(7).integers(num_agents, size=NUM_ROWS))
    line = reaction_line(told, QUICK)
    assert line.verdict is Verdict.PASS
    assert abs(line.value.value) < 0.04


@pytest.mark.parametrize("seed", range(3))
def test_right_forecasts_pass_every_line(seed):
    assert set(verdicts(made(seed)).values()) == {Verdict.PASS}


@pytest.mark.parametrize(
    ("fault", "line", "passes"),
    [
        (swapped, RUNS, ACCEPTANCE),
        (resentful, REACTION, ACCEPTANCE),
        (halved, WAITS, RUNS),
        (refused_oftener, ACCEPTANCE, RUNS),
        (slow_for_an_hour, PERSISTENCE, RUNS),
        (large_for_a_while, OVER_ALL, RUNS),
        (shared, BESIDE, ACCEPTANCE),
        (cold, COLD, ACCEPTANCE),
        (racked, ELSEWHERE, BESIDE),
        (linked, WAITS_ELSEWHERE, ELSEWHERE),
    ],
)
def test_a_planted_fault_fails_its_line_and_no_line_that_knows_nothing_of_it(fault, line, passes):
    found = verdicts(fault(made()))
    assert found[line] is Verdict.FAIL
    assert found[passes] is Verdict.PASS


def test_runs_that_decide_who_comes_next_are_no_co_runners():
    """A behaviour that avoids a node while something runs there ties arrivals to run lengths; runs stay innocent."""
    told = made(1)
    start_s = told.arrival_s + told.wait_s
    node = told.node.copy()
    ends = np.full(NUM_NODES, -np.inf)
    for row in range(NUM_ROWS):
        node[row] = (
            int(np.argmin(ends > told.arrival_s[row])) if (ends <= told.arrival_s[row]).any() else node[row]
        )
        if told.accepted[row]:
            ends[node[row]] = max(ends[node[row]], start_s[row] + told.run_s[row])
    factor = np.exp(MEAN_LOG_RUN[node] - MEAN_LOG_RUN[told.node])
    told = told._replace(node=node, run_s=told.run_s * factor, draws_run_s=told.draws_run_s * factor[:, None])
    assert verdicts(told)[BESIDE] is not Verdict.FAIL


def long_ones(told: Forecast) -> Forecast:
    """Every second request runs six times as long, and longer than forecast."""
    factor = np.where(np.arange(NUM_ROWS) % 2, 6.0, 1.0)
    return told._replace(
        run_s=told.run_s * np.where(factor > 1.0, 1.2 * factor, 1.0),
        draws_run_s=told.draws_run_s * factor[:, None],
    )


def test_long_runs_that_are_forecast_too_short_are_no_co_runners():
    """More requests come during a long run, whatever it was forecast to be."""
    assert verdicts(long_ones(made(2)))[BESIDE] is Verdict.PASS


def test_co_runners_are_not_counted_beyond_what_is_looked_at():
    told = made(3)
    window_s = 0.5 * np.median(told.draws_run_s, axis=1)
    until_s = np.ceil(told.arrival_s / 3_600.0) * 3_600.0  # an hour of every two is looked at
    kept = until_s % 7_200.0 == 0.0
    rows = {name: leaf[kept] for name, leaf in told._asdict().items() if np.shape(leaf)[:1] == (NUM_ROWS,)}
    late, came = after_start(told._replace(**rows, seen_until_s=until_s[kept]))
    within = (told.start_s + window_s <= until_s)[kept]
    runs_on = (told.run_s > window_s)[kept]
    np.testing.assert_array_equal(np.isfinite(came), within & runs_on)
    np.testing.assert_array_equal(np.isfinite(late), within & runs_on)


def test_chance_adds_nothing_to_the_bias_over_groups():
    random = np.random.default_rng(0)
    group, unit, ones = np.arange(800) % 40, np.arange(800) // 40, np.ones((1, 20))
    by_chance = [bias_over_groups(random.normal(size=800), group, unit, 20)(ones)[0] for _ in range(200)]
    assert abs(np.mean(by_chance)) < 0.004  # a mean of squares would say 0.05
    biased = bias_over_groups(random.normal(size=800) + np.where(group % 2, 0.5, -0.5), group, unit, 20)
    assert biased(ones)[0] == pytest.approx(0.25, abs=0.08)


def test_ranks_among_draws_of_one_law_are_uniform_and_equals_are_drawn_evenly():
    random = np.random.default_rng(0)
    rank = ranks(random.exponential(size=4000), random.exponential(size=(4000, 19)))
    np.testing.assert_allclose(np.quantile(rank, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
    still = ranks(np.zeros(4000), np.zeros((4000, 19)))
    np.testing.assert_allclose(np.quantile(still, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)


def test_parts_of_a_longer_time_are_equal_where_the_whole_is():
    """Transfers that become slower by a twentieth matter before runs of a tenth of a second, not before runs of a
    minute; queues that are drawn half as long do, before any run."""
    random = np.random.default_rng(1)
    transfer_s, queue_s = np.full(4000, 2.0), random.exponential(60.0, 4000)
    draws_s = np.full((4000, 19), 1.9)
    for run_s, quantiles in ((60.0, [0.1, 0.5, 0.9]), (0.1, [0.95, 0.975, 0.995])):
        rank = ranks(transfer_s, draws_s, beside_s=np.full(4000, run_s))
        np.testing.assert_allclose(np.quantile(rank, [0.1, 0.5, 0.9]), quantiles, atol=0.02)
    halved = ranks(queue_s, random.exponential(30.0, (4000, 19)), beside_s=np.full(4000, 60.0))
    assert halved.mean() > 0.6


def test_the_end_of_the_log_hides_forecasts_as_it_hides_answers():
    """Runs that the log does not see end are unknown on both sides; what it sees then has the law of the draws."""
    random = np.random.default_rng(0)
    left_s = random.uniform(0.0, 60.0, 4000)
    run_s, draws_s = random.exponential(30.0, 4000), random.exponential(30.0, (4000, 39))
    seen = run_s <= left_s
    hidden = np.where(draws_s <= left_s[:, None], draws_s, np.nan)
    fair, unfair = ranks(run_s[seen], hidden[seen]), ranks(run_s[seen], draws_s[seen])
    assert abs(fair.mean() - 0.5) < 0.02
    assert unfair.mean() < 0.4
