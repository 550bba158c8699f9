"""Tables, columns with units, checks, log formats and the day-partitioned archive.

Names are imported at their first use, so that a program that needs only errors and manifests (a policy's runner)
does not need Arrow.
"""

from typing import TYPE_CHECKING

from logs_schema.lazy import at_first_use

if TYPE_CHECKING:
    from logs_schema.archive import Archive
    from logs_schema.archive_writer import ArchiveWriter
    from logs_schema.casting import cast_rows, complete
    from logs_schema.check import check_archive
    from logs_schema.check_report import CheckReport
    from logs_schema.checks import Checked, check_rows
    from logs_schema.columns import Column, Order, TableSpec, arrow_schema
    from logs_schema.errors import (
        ArchiveError,
        ConfigError,
        FormatError,
        ProductError,
        SchedtwinError,
        SchemaError,
    )
    from logs_schema.importing import ImportReport, import_log
    from logs_schema.tables import (
        DEPLOYMENT_SAMPLES,
        NODE_SAMPLES,
        NODES,
        REPLICAS,
        REQUESTS,
        SCHEMA_VERSION,
        TABLES,
    )

__all__ = [
    "DEPLOYMENT_SAMPLES",
    "NODES",
    "NODE_SAMPLES",
    "REPLICAS",
    "REQUESTS",
    "SCHEMA_VERSION",
    "TABLES",
    "Archive",
    "ArchiveError",
    "ArchiveWriter",
    "CheckReport",
    "Checked",
    "Column",
    "ConfigError",
    "FormatError",
    "ImportReport",
    "Order",
    "ProductError",
    "SchedtwinError",
    "SchemaError",
    "TableSpec",
    "arrow_schema",
    "cast_rows",
    "check_archive",
    "check_rows",
    "complete",
    "import_log",
]

__getattr__ = at_first_use(__name__, {
    "archive": ("Archive",),
    "archive_writer": ("ArchiveWriter",),
    "casting": ("cast_rows", "complete"),
    "check": ("check_archive",),
    "check_report": ("CheckReport",),
    "checks": ("Checked", "check_rows"),
    "columns": ("Column", "Order", "TableSpec", "arrow_schema"),
    "errors": ("ArchiveError", "ConfigError", "FormatError", "ProductError", "SchedtwinError", "SchemaError"),
    "importing": ("ImportReport", "import_log"),
    "tables": (
        "DEPLOYMENT_SAMPLES", "NODE_SAMPLES", "NODES", "REPLICAS", "REQUESTS", "SCHEMA_VERSION", "TABLES",
    ),
})  # fmt: skip
