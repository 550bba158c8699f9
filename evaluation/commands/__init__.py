"""The commands of `schedtwin`: one module each, exporting NAME, HELP, add_arguments(parser), run(arguments).

A module here imports nothing heavy at its top; `add_arguments` is called only for the command that is run.
"""

from types import ModuleType

from evaluation.commands import (
    assign,
    autoscale,
    bench,
    certify,
    check,
    compact,
    compare,
    export,
    fit,
    fleet,
    generate,
    import_log,
    inspect,
    orchestrate,
    order,
    refresh,
    replay,
    reproduce,
    run,
    serve,
    sign,
    simulate,
    survey,
    train,
)

COMMANDS: tuple[ModuleType, ...] = (
    import_log,
    check,
    compact,
    survey,
    simulate,
    fit,
    generate,
    certify,
    train,
    compare,
    replay,
    order,
    assign,
    export,
    inspect,
    sign,
    serve,
    autoscale,
    orchestrate,
    run,
    refresh,
    fleet,
    reproduce,
    bench,
)
