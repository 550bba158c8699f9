"""The log formats, one module each: this list is the registry, a module's `NAME` its name."""

from logs_schema.formats import (
    alibaba2018,
    lumos,
    metrics_csv,
    native,
    openb,
    philly,
    prometheus,
    requests_csv,
    swf,
    wagap,
)

__all__ = [
    "alibaba2018",
    "lumos",
    "metrics_csv",
    "native",
    "openb",
    "philly",
    "prometheus",
    "requests_csv",
    "swf",
    "wagap",
]
