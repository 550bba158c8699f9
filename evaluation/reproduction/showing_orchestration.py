"""What `reproduce kais` and `reproduce kmps` found, as a table for people."""

from collections.abc import Mapping
from typing import Any


def as_table(found: Mapping[str, Any]) -> Any:
    """Rows as a rich table: on-time throughput in the truth with 95 % intervals."""
    from rich.table import Table

    table = Table(
        title=f"{found['world']} by slots: on time in the truth, {found['changes_per_frame']} changes a frame"
    )
    for heading in ("day", "dispatch", "orchestration", "on time", "cost MiB / request", "trained in"):
        table.add_column(heading)
    for row in found["rows"]:
        shown = f"{row['on_time']:.3f}"
        if row["low"] is not None and row["high"] is not None:
            shown += f" [{row['low']:.3f}, {row['high']:.3f}]"
        table.add_row(
            str(row["day"]), row["dispatch"], row["orchestration"], shown, f"{row['cost_mib']:.2f}",
            row["trained_in"] or "-",
        )  # fmt: skip
    return table
