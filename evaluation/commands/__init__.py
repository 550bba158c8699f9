"""The commands of `schedtwin`: one module each, exporting NAME, HELP, add_arguments(parser), run(arguments).

A module here imports nothing heavy at its top; `add_arguments` is called only for the command that was asked
for.
"""

from types import ModuleType

from evaluation.commands import import_log, simulate

COMMANDS: tuple[ModuleType, ...] = (import_log, simulate)
