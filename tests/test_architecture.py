"""Imports go one way: each package imports only what stands to its left. CONTRIBUTING.md shows the graph.

`python tests/test_architecture.py` draws it again.
"""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "knnmt"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- graph: made by tests/test_architecture.py -->", "<!-- end of graph -->"

# from left to right; those of one group may not import each other in a circle
ORDER = (
    (
        "errors",
        "host",
        "encoding",
        "settings",
        "languages",
        "jit",
        "loops",
        "ready",
        "csr",
        "files",
        "tensor_files",
        "allocator",
        "buffers",
        "optional",
        "trace",
    ),
    ("corpus",),
    ("align",),
    ("text",),
    ("checks",),
    ("documents",),
    ("model",),
    ("search",),
    ("store",),
    ("systems",),
    ("retrieval",),
    ("decode",),
    ("build",),
    ("datastore",),
    ("translate", "evidence", "overlap", "tune", "evaluate", "ter", "hf"),
    ("cluster",),
    ("server",),
    ("terminal",),
    ("lab",),
    ("cli",),
)
BASE, API = "errors, host, settings, …", "translate, evidence, tune, evaluate, hf"
NAMES = {0: BASE, 14: API}  # of groups of several, in the picture
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
LAZY = {"knnmt", "knnmt.__main__"}  # the package itself, which imports its public names when they are asked for


def modules() -> dict[str, ast.Module]:
    """All modules by name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("knnmt", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The modules of ours that a module imports, and whether it does so inside a function."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` needs the module, and the package, whose __init__ may still be running
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [node.module, *(name for name in whole if name in MODULES)]
        else:
            continue
        yield from ((name, id(node) in inside) for name in names if name.split(".")[0] == "knnmt")


def package(name: str) -> str:
    """The package, or the module of the first level, that a module is in."""
    return name.split(".")[1] if "." in name else ""


def edges() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: {target for target, _ in imports(tree)} - {"knnmt"} for name, tree in MODULES.items()}


def test_every_module_has_its_place() -> None:
    assert {package(name) for name in MODULES if name not in LAZY} == set(LEVEL)


def test_imports_go_from_right_to_left() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, targets in edges().items()
        if name not in LAZY
        for target in targets
        if LEVEL[package(target)] > LEVEL[package(name)]
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: targets & set(MODULES) for name, targets in edges().items() if name not in LAZY}
    # a package's __init__ may import its modules, which import one another but not the package
    left = dict(graph)
    while free := [name for name, targets in left.items() if not targets & set(left) - {name}]:
        for name in free:
            del left[name]
    assert not left, f"in a circle, or behind one: {sorted(left)}"


def test_no_import_hides_in_a_function() -> None:
    """Except in commands, which import what they run when they run: `knnmt --help` answers at once."""
    hidden = [
        f"{name} imports {target}"
        for name, tree in MODULES.items()
        for target, inside in imports(tree)
        if inside and package(name) != "cli" and name not in LAZY
    ]
    assert not hidden


def test_no_file_is_longer_than_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in SOURCE.rglob("*")
        if path.suffix in {".py", ".js", ".css", ".html"} and (count := len(path.read_text("utf-8").splitlines())) > 400
    }
    assert not long


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """By default pytest does not look into folders called build or dist."""
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    passed_over = pytestconfig.getini("norecursedirs")
    assert (ROOT / "tests" / "build") in folders
    assert not [str(path) for path in folders for name in passed_over if fnmatch(path.name, name)]


def graph() -> str:
    """The packages and what they import, less what follows from the rest; for GitHub to draw."""
    reach: dict[int, set[int]] = {level: set() for level in range(len(ORDER))}
    for name, targets in edges().items():
        if name not in LAZY:
            reach[LEVEL[package(name)]] |= {LEVEL[package(target)] for target in targets}
    lines = ["```mermaid", "graph LR"]
    for level, direct in reach.items():
        direct = direct - {level}
        beyond = {far for near in direct for far in _reached(reach, near)}
        label = NAMES.get(level, ", ".join(ORDER[level]))
        lines.append(f'  p{level}["{label}"]')
        lines += [f"  p{target} --> p{level}" for target in sorted(direct - beyond)]
    return "\n".join([*lines, "```"])


def _reached(reach: dict[int, set[int]], start: int) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        for target in reach[todo.pop()] - found:
            if target != start:
                found.add(target)
                todo.append(target)
    return found


def test_the_graph_in_contributing_is_that_of_the_code() -> None:
    drawn = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", PAGE.read_text("utf-8"), re.DOTALL)
    assert drawn is not None
    assert drawn[1] == graph(), "draw it again: python tests/test_architecture.py"


def test_levels_rise() -> None:
    assert all(set(one).isdisjoint(other) for one, other in pairwise(ORDER))


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{graph()}\n{END}{after}", "utf-8")
