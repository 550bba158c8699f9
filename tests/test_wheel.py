"""The wheel that `make wheel` builds: installed where there is nothing else but NumPy, it runs a policy."""

import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.offline_rl.bundles import FREE, made_policy, made_system

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(tmp_path: Path) -> None:
    built, home = tmp_path / "dist", tmp_path / "empty"
    build = (
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        built,
    )
    subprocess.run([sys.executable, "-m", *map(str, build), str(ROOT)], check=True)
    (wheel,) = built.glob("schedtwin-*.whl")
    venv.create(home, with_pip=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs"):  # in place of an index
        (packages / name).symlink_to(Path(np.__file__).parents[1] / name)
    install = (home / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    subprocess.run([*map(str, install)], check=True)
    made_policy(tmp_path / "bundle", made_system()[0], FREE)

    def ran(program: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [str(home / "bin" / program), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={})

    assert ran("schedtwin", "--version").stdout == f"schedtwin {wheel.name.split('-')[1]}\n"
    shown = ran("schedtwin", "inspect", "bundle")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "golden decisions" in shown.stdout
    asked = ran("schedtwin", "simulate", "--preset", "small", "--days", "1", "--out", "log")
    assert asked.returncode == 2
    assert "pip install 'WHEEL[train]'" in asked.stderr
    code = "from offline_rl.runner import Node, Request, load; import offline_rl; print(offline_rl.__file__)"
    found = ran(
        "python", "-c", f"{code}; load('bundle').decide([Node('cloud')], Request(site='site-0'), 0.0)"
    )
    assert found.stderr == ""
    assert found.stdout.startswith(str(home))
