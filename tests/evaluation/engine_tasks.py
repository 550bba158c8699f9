"""Tasks for the tests of the engine: functions of a module, for workers import them."""

import os
import signal
import time
from pathlib import Path

from logs_schema.errors import FormatError
from logs_schema.product import writing


def square(number: int) -> int:
    return number * number


def dies_once(file: Path) -> str:
    """Kills its own process the first time."""
    if not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return file.name


def always_dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def takes_a_second(file: Path) -> str:
    time.sleep(1.0)
    file.touch()
    return file.name


def writes_aside(path: Path) -> None:
    """Begins a product and never ends it."""
    with writing(path, "twin") as folder:
        (folder / "begun").touch()
        time.sleep(600.0)


def refuses(number: int) -> int:
    if number == 1:
        raise FormatError("not this one", where="row 1", allowed="others", advice="leave it out")
    return number
