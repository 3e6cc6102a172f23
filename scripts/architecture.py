"""The floors of the house: which package may import which. The test and docs/design.md are made
from this file.

    .venv/bin/python scripts/architecture.py           print the drawing
    .venv/bin/python scripts/architecture.py --write   put it into docs/design.md

Rules:

1. A package imports packages of lower floors, or of its own floor if no modules import each other
   in a circle.
2. A name that starts with an underscore is used inside its own package only.

An import is `import x`, `from x import y` in every form, anywhere in a file; a name of a module in
a table of names that are loaded on first use; and the registry of formats.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tensorwire"
PAGE = ROOT / "docs" / "design.md"
START, END = "<!-- floors: made by scripts/architecture.py -->\n", "<!-- end of floors -->\n"

# From the ground up.
FLOORS = [
    ["_errors", "_limits", "_optional"],
    ["core", "wire"],
    ["frameworks", "transforms", "storage"],
    ["lowering"],
    ["records", "codecs"],
    ["api"],
    ["io", "torch", "ray", "checkpoint", "serving", "datasets", "explore"],
    ["view", "cli", "testing"],
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
FRONT = ("", "__main__")
"""The front door, which loads every name on first use, and `python -m tensorwire`."""


class Import(NamedTuple):
    module: str
    target: str
    """The module, or the name in it."""
    line: int


def modules() -> dict[str, Path]:
    """Every module by its name below `tensorwire`; a package by its own name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[Import]:
    """Everything that a module imports from this package."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tensorwire":
                    yield Import(name, alias.name[len("tensorwire.") :], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            inside = node.level > 0
            if not inside and (node.module or "").split(".")[0] != "tensorwire":
                continue
            base = package[: len(package) - node.level + 1] if inside else []
            rest = (node.module or "").split(".") if inside else (node.module or "").split(".")[1:]
            start = ".".join([*base, *filter(None, rest)])
            for alias in node.names:
                yield Import(name, f"{start}.{alias.name}" if start else alias.name, node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _by_name(name, package, node)


def _by_name(name: str, package: list[str], node: ast.Constant) -> Iterator[Import]:
    """A module in a table: "codecs.checkpoint.state", or "safetensors:Safetensors" in the registry
    of formats.
    """
    text = str(node.value).partition(":")[0].removeprefix("tensorwire.")
    dotted = "." in text and text.replace(".", "").replace("_", "").isalnum()
    if dotted and text in MODULES:
        yield Import(name, text, node.lineno)
    elif (dotted or ":" in str(node.value)) and (inner := ".".join([*package, text])) in MODULES:
        yield Import(name, inner, node.lineno)


def home(target: str) -> str:
    """The module that an imported name is in, or is."""
    while target and target not in MODULES:
        target = target.rpartition(".")[0]
    return target


def top(name: str) -> str:
    return name.partition(".")[0]


def upward() -> list[str]:
    """Imports that go up, as sentences."""
    return [sentence for name in MODULES for sentence in upward_of(name)]


def upward_of(name: str) -> Iterator[str]:
    """Imports of one module that go up."""
    for found in imports(name):
        source, target = top(name), top(home(found.target))
        if (
            source in FRONT
            or target in FRONT
            or found.target.startswith(("_native", "__version__"))
        ):
            continue
        if FLOOR[target] > FLOOR[source]:
            yield f"{name}:{found.line} imports {found.target}, which is above it"


def circles() -> list[list[str]]:
    """Modules of different packages of one floor that import each other."""
    edges = defaultdict(set)
    for name in MODULES:
        for found in imports(name):
            target = home(found.target)
            if target and top(name) not in FRONT and FLOOR.get(top(target)) == FLOOR.get(top(name)):
                edges[name].add(target)
    found: list[list[str]] = []
    for group in _components(edges):
        if len({top(name) for name in group}) > 1:
            found.append(sorted(group))
    return found


def _components(edges: dict[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected components, by reachability: the graph is small."""

    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for other in edges.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    reach = {name: reached(name) for name in list(edges)}
    done: set[str] = set()
    for name in reach:
        group = {other for other in reach[name] if name in reach.get(other, ())}
        if group and not group & done:
            done |= group
            yield group


def private() -> list[str]:
    """Names with an underscore that another package uses, as sentences."""
    wrong = []
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        local: dict[str, str] = {}
        for found in imports(name):
            leaf = found.target.rpartition(".")[2]
            inner = home(found.target)
            if (
                top(inner) != top(name)
                and leaf.startswith("_")
                and not leaf.startswith("__")
                and inner != found.target
            ):
                wrong.append(f"{name}:{found.line} imports {found.target}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    local[alias.asname or alias.name] = alias.name
        own = {
            n.attr
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute)
            and isinstance(n.value, ast.Name)
            and n.value.id in ("self", "cls")
        }
        own |= {
            n.name
            for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        own |= {
            t.id
            for n in ast.walk(tree)
            if isinstance(n, ast.AnnAssign)
            for t in [n.target]
            if isinstance(t, ast.Name)
        }
        own |= {
            t.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        own |= {
            c.value
            for n in ast.walk(tree)
            if isinstance(n, (ast.Tuple, ast.List))
            for c in n.elts
            if isinstance(c, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                not isinstance(node, ast.Attribute)
                or not node.attr.startswith("_")
                or node.attr.startswith("__")
            ):
                continue
            if node.attr not in own | ALLOWED | FOREIGN.get(name, set()):
                wrong.append(f"{name}:{node.lineno} uses {ast.unparse(node)}")
    return wrong


ALLOWED = {"_asdict", "_replace", "_fields", "_make", "_exit"}
"""Names of Python's own with an underscore, which are public."""
FOREIGN = {
    "cli.shells": {"_actions"},
    "frameworks.torch": {
        "_C",
        "_functorch",
        "_indices",
        "_is_functional_tensor",
        "_ragged_idx",
        "_values",
    },
    "serving.server.runner": {"_make_callable_from_options"},
}
"""Private names of argparse, PyTorch and TensorFlow, for which they have no public one."""


def drawing() -> str:
    """The floors, and which packages each package imports."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        for found in imports(name):
            source, target = top(name), top(home(found.target))
            if source not in FRONT and target not in FRONT and source != target:
                edges[source].add(target)
    width = max(len(name) for names in FLOORS for name in names)
    lines = []
    for number, names in reversed(list(enumerate(FLOORS, 1))):
        lines.append(f"floor {number}")
        for name in names:
            below = [
                other
                for row in FLOORS
                for other in row
                if other in edges[name] and not other.startswith("_")
            ]
            lines.append(
                f"  {name:{width}}  {'imports ' + ' '.join(below) if below else ''}".rstrip()
            )
    return "\n".join(lines)


def page(text: str) -> str:
    """docs/design.md with the drawing in its place."""
    before, _, rest = text.partition(START)
    return f"{before}{START}```text\n{drawing()}\n```\n{END}{rest.partition(END)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/design.md")
    args = parser.parse_args()
    if args.write:
        PAGE.write_text(page(PAGE.read_text()))
    else:
        print(drawing())
        for line in [*upward(), *(" <-> ".join(group) for group in circles()), *private()]:
            print(line, file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
