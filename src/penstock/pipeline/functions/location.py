"""Where a function of the user is defined, found by reading files: nothing is imported and nothing runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Final

__all__ = ["Location", "locate"]

_LARGEST: Final = 4 << 20
_COMPILED: Final = (*EXTENSION_SUFFIXES, ".pyc")


@dataclass(frozen=True, slots=True)
class Location:
    """The file of a function; None if it is not in a source file that can be read here."""

    file: Path | None = None
    problem: str | None = None
    """Why it cannot be called; None if nothing speaks against it."""


def locate(name: str, path: Sequence[str]) -> Location:
    """Look for `module:function` in folders, as an import would.

    >>> locate("json:dumps", [str(Path(ast.__file__).parent)]).problem
    >>> locate("json:dump_s", [str(Path(ast.__file__).parent)]).problem
    'module json does not define dump_s'
    """
    module, _, function = name.partition(":")
    parts = module.split(".")
    roots = [Path(entry) for entry in path]
    file = next((found for root in roots for found in _sources(root, parts) if found.is_file()), None)
    if file is not None:
        return Location(file, _problem(file, module, function))
    compiled = any(Path(root, *parts).with_suffix(ending).exists() for root in roots for ending in _COMPILED)
    archives = [str(root) for root in roots if root.is_file()]
    if compiled or (archives and PathFinder.find_spec(parts[0], archives) is not None):
        return Location()
    return Location(problem=f"there is no module {module}")


def _sources(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    folder = root.joinpath(*parts)
    yield folder / "__init__.py"
    yield folder.with_name(f"{parts[-1]}.py")


def _problem(file: Path, module: str, function: str) -> str | None:
    try:
        raw = file.read_bytes()
        tree = ast.parse(raw[:_LARGEST], str(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        return f"{file.name} cannot be read: {exc}"
    found = None
    for statement in _statements(tree.body):
        if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
            return None
        if function in _names(statement):
            found = statement
    if found is None:
        return f"module {module} does not define {function}"
    return _unfit(found, function)


def _unfit(statement: ast.stmt, function: str) -> str | None:
    if isinstance(statement, ast.AsyncFunctionDef):
        return f"{function} is async; a function is called, not awaited"
    if isinstance(statement, ast.FunctionDef):
        taken = statement.args
        if not (taken.posonlyargs or taken.args or taken.vararg):
            return f"{function} takes no argument"
    return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Give the statements of a module, those inside of `if` and `try` too."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(statement, part, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _statements(handler.body)


def _names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
