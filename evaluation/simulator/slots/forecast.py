"""The forecast of a world's day by the world's own laws, an upper bound for forecasts from logs."""

import numpy as np

from evaluation.simulator.slots.instance import Instance
from twin.orchestration.forecast import DayForecast

NUM_BINS = 96
_TIMES_IN_BIN = 4


def true_forecast(case: Instance) -> DayForecast:
    """Rates, runs and ways of the day."""
    today, day_s = case.by_site, float(case.by_site.day_s)
    times = (np.arange(NUM_BINS * _TIMES_IN_BIN) + 0.5) / (NUM_BINS * _TIMES_IN_BIN)
    rate = today.rate_per_s * (1.0 - today.amplitude * np.cos(2.0 * np.pi * times))
    share = _shares(case, times) * rate[:, None, None]
    public = case.public
    num_sites = len(public.cluster.sites)
    rate_per_s = np.zeros((NUM_BINS, public.num_services, num_sites), np.float32)
    mean = share.reshape(NUM_BINS, _TIMES_IN_BIN, *share.shape[1:]).mean(axis=1)
    rate_per_s[np.ix_(np.arange(NUM_BINS), case.names.service, case.names.site)] = mean
    link = case.link
    return DayForecast(
        day_s / NUM_BINS,
        rate_per_s,
        public.work_s[:, None] * case.run_factor,
        today.latency_s[link],
        today.s_per_mib[link],
    )


def _shares(case: Instance, times: np.ndarray) -> np.ndarray:
    """[times, services, sites] share of all requests, in the world's own order of services; `times` of the day."""
    today, tides = case.by_site, case.world.tides
    mix = np.diff(today.service_cumulative, axis=0, prepend=0.0)
    agent_share = np.diff(today.agent_cumulative, prepend=0.0)
    sites, scenarios = len(case.low), mix.shape[1]
    of_site = np.zeros((sites, scenarios))
    np.add.at(of_site, (today.agent_site, today.agent_scenario), agent_share)
    swing = np.exp(
        tides.strength * np.cos(2.0 * np.pi * (tides.per_day * times[:, None, None] - today.tide_phase))
    )
    now = mix[None, :, None, :] * swing[..., None]  # [times, services, sites, scenarios]
    return np.einsum("tsbc,bc->tsb", now / now.sum(axis=1, keepdims=True), of_site)
