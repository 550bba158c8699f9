"""The documented tables are the declared ones."""

from pathlib import Path

import pytest

from logs_schema.documentation import END, START, main, tables_markdown, with_tables
from logs_schema.errors import ConfigError
from logs_schema.tables import TABLES

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_says_what_the_code_declares() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_tables(text, "README.md"), "run python -m logs_schema.documentation"


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
