"""Two servers of Prometheus that watch the same: a series of each, alike but for the label that names the server."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from logs_schema.errors import FormatError
from logs_schema.formats.metric_series import MetricSeries

SERVER_LABELS = ("prometheus_replica", "__replica__")
"""What the Prometheus operator, and Cortex and Mimir, call the label."""
REPLICA, SERVER = "replica", "prometheus"
"""What Thanos calls it, and what names of servers hold then: `replica="prometheus-k8s-1"`."""
ADDING = ("sum", "count")


def refuse_copies(metric: MetricSeries, of_series: Iterable[Mapping[str, Any]]) -> None:
    """FormatError where series that are added up, or counted, are those of one thing by several servers.

    Args:
        metric: How series of one deployment become one number.
        of_series: The labels of each series.
    """
    if metric.combine not in ADDING:
        return
    found: dict[tuple[str, str], str] = {}
    for labels in of_series:
        for label, name in labels.items():
            if label not in SERVER_LABELS and not (label == REPLICA and SERVER in str(name)):
                continue
            others = json.dumps({key: labels[key] for key in sorted(labels) if key != label})
            other = found.setdefault((label, others), str(name))
            if other != str(name):
                raise FormatError(
                    f"two servers, {other} and {name}, tell of one thing, and {metric.column} is the "
                    f"{metric.combine} of both",
                    where=f"{metric.where}: {others}",
                    allowed="each series once",
                    advice=f"ask for it so: max without ({label}) (...), or Thanos with dedup=true; of answers that "
                    f"are there keep one server's: jq '.data.result |= map(select(.metric.{label} == \"{other}\"))'",
                )
