"""The certificate of the edges of a log: their forecasts of the computing times and ways of held-out days.

Every line is an error of what the twin forecasts of a request by its size and edge alone, with an interval over days,
or over blocks of consecutive requests of a day where days are few. Arrivals are no part of the twin: rounds take the
log's.
"""

import datetime as dt
from collections.abc import Sequence

import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.comparison.bootstrap import Statistic, ratio_over_units, resampling_units
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from twin.assignment.from_logs import EdgesFromLog
from twin.assignment.ran_requests import RanRequests, read_ran, sized
from twin.assignment.ways import MIN_ROWS, found_free, way_s

SHARE = 0.9
ABOUT = {
    "computing": "Forecast over measured computing time on held-out days, all requests together, less one.",
    "spread": f"Held-out requests whose time lies in the middle {SHARE:.0%} of its forecast, less {SHARE:g}.",
    "ways": "Forecast over measured time from arrival to start where a core was free, less one, by pair of sites.",
}


def certify_edges(
    edges: EdgesFromLog,
    archive: Archive,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date],
    config: CertifyConfig,
    twin_hash: str,
    _keep: Unfinished = NOTHING_KEPT,
) -> Certificate:
    """Holds the edges of a log against held-out days.

    Raises:
        ConfigError: There is no held-out day, or too few of its requests ran.
    """
    rows = sized(read_ran(archive, edges.names, days), edges.size) if days else None
    if rows is None or len(rows.edge) < config.min_rows:
        raise ConfigError(
            "there are too few requests after the training days to hold the twin against",
            where=f"{archive.path}: {0 if rows is None else len(rows.edge)} requests that ran",
            allowed=f"{config.min_rows} requests on later days",
            advice="give a longer log, or fit on fewer days",
        )
    unit, kind = resampling_units((rows.arrival_s // DAY_S).astype(int))
    lines = [*_computing(edges, rows, unit, config), *_ways(edges, archive, rows, unit, config)]
    notes = [*edges.notes, f"Intervals are over {kind}."]
    return certificate_of(
        lines, ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash, train_days=train_days, days=days,
        num_requests=len(rows.edge), notes=notes,
    )  # fmt: skip


def _computing(edges: EdgesFromLog, rows: RanRequests, unit: np.ndarray, config: CertifyConfig) -> list[Line]:
    limits, intervals, num_units = config.thresholds, config.intervals(), len(np.unique(unit))
    size = rows.sizes[edges.size]
    forecast_s, inside = np.empty(len(size)), np.empty(len(size))
    for index, one in enumerate(edges.compute.values()):
        mine = rows.edge == index
        forecast_s[mine] = one.at(size[mine])
        inside[mine] = one.inside(rows.seconds[mine], size[mine], SHARE)

    def both(name: str, where: np.ndarray, *, deciding: bool = False, reason: str = "") -> tuple[Line, Line]:
        off = _ratio(unit, forecast_s, rows.seconds, where)
        beside = _ratio(unit, inside + (1.0 - SHARE), np.ones(len(size)), where)
        return tuple(
            about_zero(section, f"{words} {name}, off by", "share", measured, num_units, limit, intervals,
                       deciding=deciding, reason=reason)
            for section, words, measured, limit in (
                ("computing", "computing on", off, limits.run_bias_by_node),
                ("spread", "inside forecasts,", beside, limits.coverage),
            )
        )  # type: ignore[return-value]  # fmt: skip

    pairs, silent = [both("all edges", np.ones(len(size), bool), deciding=True)], []
    for index, (name, one) in enumerate(edges.compute.items()):
        mine = rows.edge == index
        if mine.sum() < MIN_ROWS:
            why = f"{int(mine.sum())} of its requests ran on the held-out days, {MIN_ROWS} are needed"
            silent.append(not_applicable("computing", f"computing on {name}, off by", why))
            continue
        pairs.append(
            both(name, mine, reason="" if one.source == "own" else f"by the function of {one.source}")
        )
    return [*(first for first, _ in pairs), *silent, *(second for _, second in pairs)]


def _ways(
    edges: EdgesFromLog, archive: Archive, rows: RanRequests, unit: np.ndarray, config: CertifyConfig
) -> list[Line]:
    if not edges.ways:
        why = "the log does not time inputs: it has no input_mib, or no request that found a free core"
        return [not_applicable("ways", "time of inputs, off by", why)]
    nodes = archive.nodes()
    cores = dict(zip(nodes["node_id"].to_pylist(), nodes["cpu_cores"].to_pylist(), strict=True))
    clear = found_free(rows, np.array([cores.get(name) or 1.0 for name in edges.names]))
    sites = [edges.sites[name] for name in edges.names]
    input_mib = rows.sizes.get("input_mib", np.full(len(rows.edge), np.nan))
    forecast_s = way_s(edges.ways, rows.site, sites, input_mib)[np.arange(len(rows.edge)), rows.edge]
    node_site, lines = np.array(sites)[rows.edge], []
    for here, others in edges.ways.items():
        for there in others:
            name, where = (
                f"way from {here} to {there}, off by",
                clear & (rows.site == here) & (node_site == there),
            )
            if where.sum() < MIN_ROWS:
                why = f"{int(where.sum())} held-out requests went this way and found a free core"
                lines.append(not_applicable("ways", name, why))
                continue
            measured = _ratio(unit, forecast_s, rows.delay_s, where)
            lines.append(about_zero("ways", name, "share", measured, len(np.unique(unit)),
                                    config.thresholds.wait_bias, config.intervals()))  # fmt: skip
    return lines


def _ratio(unit: np.ndarray, above: np.ndarray, below: np.ndarray, where: np.ndarray) -> Statistic:
    """Sum over sum, less one, as a function of the units' weights."""
    place = np.unique(unit, return_inverse=True)[1]
    ratio = ratio_over_units(*(np.bincount(place, np.where(where, one, 0.0)) for one in (above, below)))
    return lambda weights: ratio(weights) - 1.0
