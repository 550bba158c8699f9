"""The documented tables are the declared ones."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from logs_schema import Archive, import_log
from logs_schema.documentation import END, START, main, tables_markdown, with_tables
from logs_schema.errors import ConfigError
from logs_schema.tables import TABLES

README = Path(__file__).resolve().parents[2] / "logs_schema" / "README.md"


def test_the_readme_says_what_the_code_declares() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_tables(text, "README.md"), "run python -m logs_schema.documentation"


def test_the_example_of_a_log_of_ones_own_is_one(tmp_path: Path) -> None:
    files = re.findall(
        r"`(\w+\.csv)`\n\n```csv\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    report = import_log("native", [tmp_path], tmp_path / "archive")
    assert (report.rows, report.quarantined) == ({"nodes": 2, "requests": 2}, {})
    first, second = Archive(report.archive).read("requests").to_pylist()
    assert first["candidates"] == ["edge-0", "cloud"]
    assert (first["accepted"], second["accepted"]) == (True, False)
    assert first["start"] - first["arrival"] == timedelta(seconds=1.5)
    assert second["arrival"] - first["arrival"] == timedelta(minutes=1)
    assert Archive(report.archive).nodes()["virtual"].to_pylist() == [False, False]


def test_every_column_is_described() -> None:
    text = tables_markdown()
    for spec in TABLES:
        assert f"**`{spec.name}`**" in text
        for column in spec.columns:
            assert f"| `{column.name}` |" in text
            assert column.description in text
    assert "| `propensity` | number | 1 | 0 to 1 |" in text
    assert "| `tier` | label |  | required; edge, cloud, pool |" in text


def test_what_stands_around_the_tables_stays(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{START}\nstale words\n{END}\nafter\n", encoding="utf-8")
    main([str(file)])
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{START}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "stale words" not in text
    assert with_tables(text) == text


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no place for the tables[\s\S]*page.md"):
        with_tables("no markers", "page.md")
