"""The floors of the house: evaluation -> offline_rl -> twin -> logs_schema, and nothing imports upward."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("logs_schema", "twin", "offline_rl", "evaluation")  # from the ground up
HEAVY = {"jax", "jaxlib", "flax", "optax", "sklearn", "matplotlib"}
SELDOM_USED = ("matplotlib", "sklearn", "scipy.optimize", "scipy.stats")
"""Slow to import: the functions that need them import them."""


class Parsed(NamedTuple):
    """What is asked of a file; parsing is what takes time, and a whole tree takes memory."""

    nodes: list[ast.AST]  # imports, comparisons and values matched, wherever they stand
    run: list[ast.AST]  # the imports that are run: not those for types alone
    classes: list[str]  # of the module itself
    functions: list[tuple[str, int]]  # name and lines
    undeclared: list[str]  # arguments that docstrings explain and functions do not take


@cache
def parsed(source: str) -> Parsed:
    tree = ast.parse(source)
    every = list(ast.walk(tree))
    return Parsed(
        [one for one in every if isinstance(one, ast.Import | ast.ImportFrom | ast.Compare | ast.MatchValue)],
        list(imports_run(tree)),
        [node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        [(one.name, one.end_lineno - one.lineno + 1) for one in every if isinstance(one, ast.FunctionDef)],
        [
            f"{one.name}: {name}"
            for one in every
            if isinstance(one, ast.FunctionDef)
            for name in undeclared(one)
        ],
    )


def undeclared(function: ast.FunctionDef) -> list[str]:
    """The names under `Args:` of its docstring that the function does not take."""
    section = re.search(
        r"^Args:\n((?:    .*\n|\n)+)", (ast.get_docstring(function) or "") + "\n", re.MULTILINE
    )
    explained = re.findall(r"^    (\w+(?:, \w+)*):", section[1], re.MULTILINE) if section else []
    taken = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return [name for names in explained for name in names.split(", ") if name not in taken]


def imports_run(tree: ast.Module) -> Iterator[ast.AST]:
    """The imports that run with the module or with a function of it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        waiting.extend(one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr))


def imported(source: str, package: str, *, at_start: bool = False) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, wherever it stands; `package` resolves relative ones.

    `at_start`: only of those that are no part of anything else.
    """
    for node in parsed(source).nodes:
        if at_start and node.col_offset:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            yield node.lineno, ".".join([*parents, *([node.module] if node.module else [])])


def imports_of(floor: str) -> Iterator[tuple[str, str]]:
    """Place and top-level package of every import of a floor's files."""
    for file in sorted((ROOT / floor).rglob("*.py")):
        place = file.relative_to(ROOT)
        for line, name in imported(file.read_text(encoding="utf-8"), ".".join(place.parent.parts)):
            yield f"{place}:{line} imports {name}", name.split(".")[0]


@pytest.mark.parametrize("floor", FLOORS)
def test_nothing_imports_upward_or_the_tests(floor):
    above = {*FLOORS[FLOORS.index(floor) + 1 :], "tests"}
    imports = list(imports_of(floor))
    assert imports, f"no imports found: is {floor}/ where this test looks?"
    assert [place for place, top in imports if top in above] == []


def test_logs_schema_is_light():
    assert [place for place, top in imports_of("logs_schema") if top in HEAVY] == []


def test_logs_schema_is_light_when_imported():
    program = (
        "import pkgutil, sys, importlib, logs_schema\n"
        "for module in pkgutil.walk_packages(logs_schema.__path__, 'logs_schema.'):\n"
        "    importlib.import_module(module.name)\n"
        f"print(*sorted({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []


def at_the_start(source: str) -> list[str]:
    """What a module imports when it is imported itself."""
    return [name for _, name in imported(source, "a.b", at_start=True)]


def test_commands_do_not_start_with_what_few_of_them_use():
    alone = ROOT / "evaluation" / "reproduction"  # imported by its own commands alone
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py") if alone not in file.parents]
    found = {file: at_the_start(file.read_text(encoding="utf-8")) for file in files}
    assert at_the_start("import scipy.stats\ndef f():\n    import matplotlib") == ["scipy.stats"]
    assert [
        (file, name) for file, names in found.items() for name in names if name.startswith(SELDOM_USED)
    ] == []


def test_the_reader_of_imports_sees_every_form():
    source = "import a.b, c\nfrom d.e import f\ndef g():\n    from .. import h\n    from .i import j\n"
    names = [name for _, name in imported(source, "twin.placement")]
    assert names == ["a.b", "c", "d.e", "twin", "twin.placement.i"]


def modules_of(root: Path) -> dict[str, Path]:
    """Dotted name -> file of every module of the house."""
    files = [file for floor in FLOORS for file in (root / floor).rglob("*.py")]
    names = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
    return {name.removesuffix(".__init__"): file for name, file in zip(names, files, strict=True)}


def runtime_imports(source: str) -> Iterator[str]:
    """Dotted name of everything imported when the module or a function of it runs; imports for types alone are not."""
    for node in parsed(source).run:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: dict[str, Path]) -> set[tuple[str, str]]:
    """Pairs (module, module that it imports)."""
    pairs = set()
    for name, file in modules.items():
        for target in runtime_imports(file.read_text(encoding="utf-8")):
            found = target
            while found and found not in modules:
                found = found.rpartition(".")[0]
            pairs |= {(name, found)} if found and found != name else set()
    return pairs


def in_a_ring(pairs: set[tuple[str, str]]) -> set[str]:
    """What is left once everything without a way in or a way out is taken away, again and again."""
    while True:
        kept = {
            pair for pair in pairs if pair[1] in {a for a, _ in pairs} and pair[0] in {b for _, b in pairs}
        }
        if kept == pairs:
            return {name for pair in pairs for name in pair}
        pairs = kept


def neighbours_in(package: str, pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs as seen from a package: its files and folders are the units; its own `__init__` is none of them."""
    depth = package.count(".") + 1
    inside = {
        (a.split(".")[depth], b.split(".")[depth])
        for a, b in pairs
        if a.startswith(f"{package}.") and b.startswith(f"{package}.")
    }
    return {(a, b) for a, b in inside if a != b}


def test_files_and_folders_import_each_other_one_way_only():
    modules = modules_of(ROOT)
    pairs = import_graph(modules)
    packages = [name for name, file in modules.items() if file.name == "__init__.py"]
    rings = {package: sorted(in_a_ring(neighbours_in(package, pairs))) for package in packages}
    assert {package: ring for package, ring in rings.items() if ring} == {}


def test_rings_are_found():
    assert in_a_ring({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")}) == {"a", "b", "c"}
    assert in_a_ring({("a", "b"), ("b", "c"), ("a", "c")}) == set()
    pairs = {("x.one.a", "x.two.b"), ("x.two.c", "x.one.d"), ("x.one.a", "y.z"), ("x.one.a", "x.one.d")}
    assert neighbours_in("x", pairs) == {("one", "two"), ("two", "one")}
    assert neighbours_in("x.one", pairs) == {("a", "d")}
    source = "import a.b\nif TYPE_CHECKING:\n    from c import d\ndef f():\n    from e import g\n"
    assert sorted(runtime_imports(source)) == ["a.b", "e.g"]


def test_nothing_branches_on_a_problems_name():
    """Problems are reached through their records (kits, serving forms, fits): no comparison with a problem's name.

    The kinds of bundles count as names, and so does another module's `PROBLEM`, also under an alias; a module may
    refuse what is not of its own `PROBLEM`.
    """
    names = {"placement", "ordering", "assignment", "orchestration", "autoscaling", "batches"}
    names |= {"scaling-bundle", "assignment-bundle", "scaling_kind", "assignment_kind"}

    def is_name(node: ast.expr, aliases: set[str]) -> bool:
        if isinstance(node, ast.Constant):
            return node.value in names
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(is_name(one, aliases) for one in node.elts)
        if isinstance(node, ast.Attribute):
            return node.attr.isupper() and node.attr.lower() in names | {"problem"}
        called = node.id if isinstance(node, ast.Name) else ""
        return called in aliases or (called.isupper() and called.lower() in names)

    def compared(source: str) -> list[int]:
        found, nodes = [], parsed(source).nodes
        imports = [one for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names]
        others = [one for one in imports if one.name.isupper() and one.name.lower() in names | {"problem"}]
        aliases = {one.asname or one.name for one in others}
        for node in nodes:
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            sides += [node.value] if isinstance(node, ast.MatchValue) else []
            found += [node.lineno for side in sides if is_name(side, aliases)]
        return found

    source = "a == 'ordering'\nb in ('placement', 'c')\nmatch d:\n    case 'batches': pass"
    assert compared(source) == [1, 2, 4]
    source = "from a import PROBLEM as ONE, ORDERING as TWO, FEW as ORDER\n"
    assert compared(source + "x == ONE\ny != TWO\nz == ORDER\nq == r.PROBLEM") == [2, 3, 5]
    source = "from a import PROBLEM, SCALING_KIND\nb == SCALING_KIND\nc == 'assignment-bundle'\nd == PROBLEM"
    assert compared(source) == [2, 3, 4]
    assert compared("PROBLEM = 'ordering'\nd == PROBLEM") == []
    files = [file for floor in FLOORS for file in sorted((ROOT / floor).rglob("*.py"))]
    places = [(file, line) for file in files for line in compared(file.read_text(encoding="utf-8"))]
    assert [f"{file.relative_to(ROOT)}:{line}" for file, line in places] == []


def test_docstrings_explain_arguments_that_there_are():
    doc = "One.\n\n    Args:\n        a, c: Two.\n        b: three,\n            d: of it."
    source = f'def f(a, *b):\n    """{doc}\n    """'
    assert parsed(source).undeclared == ["f: c"]
    files = [file for floor in FLOORS for file in sorted((ROOT / floor).rglob("*.py"))]
    found = {str(file): parsed(file.read_text(encoding="utf-8")).undeclared for file in files}
    assert {file: names for file, names in found.items() if names} == {}


def test_a_class_name_means_one_thing_in_the_whole_house():
    places: dict[str, list[str]] = {}
    for floor in (*FLOORS, "notebooks"):
        for file in sorted((ROOT / floor).rglob("*.py")):
            for name in parsed(file.read_text(encoding="utf-8")).classes:
                places.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_file_is_too_long_to_be_read_at_once():
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py")]
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files
    }
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_function_is_too_long_to_be_read_at_once():
    lengths = {
        f"{file.relative_to(ROOT)}: {name}": length
        for floor in FLOORS
        for file in (ROOT / floor).rglob("*.py")
        for name, length in parsed(file.read_text(encoding="utf-8")).functions
    }
    assert {name: length for name, length in lengths.items() if length > 80} == {}
