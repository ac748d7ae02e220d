"""A YAML file as a tree of texts with their positions; types are given later, by the table of keys.

The file is hostile until read: size, depth, number of values and what aliases expand to are bounded, a
key stands once, and tags mean nothing. Values stay texts, so `no` and `1e3` are never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

__all__ = ["Branch", "Leaf", "Node", "Position", "parse_tree", "read_tree"]

MAX_BYTES: Final = 1_000_000
MAX_LINE: Final = 32_000
"""Characters; the parser's time grows with the square of a tag's length."""
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file, counted from one."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value; the text None is YAML's null: the key is there and says nothing."""

    text: str | None = field(repr=False)
    position: Position
    size: int = 1


@dataclass(frozen=True, slots=True)
class Branch:
    """Values under keys, in the order of the file; a list is keyed by its index."""

    children: Mapping[str, Node]
    position: Position
    keys: Mapping[str, Position] = field(default_factory=dict)
    """Where each key stands."""
    is_list: bool = False
    size: int = 1


Node = Leaf | Branch

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


def read_tree(path: Path, shown_as: str) -> Branch:
    """Read a file whose root is a mapping; an empty file is an empty mapping."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"cannot read {shown_as}: {exc.strerror}", where=str(path)) from exc
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{shown_as} is larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
    try:
        return parse_tree(raw.decode("utf-8-sig"), shown_as)
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{shown_as} is not UTF-8", where=f"{shown_as}, byte {exc.start}") from exc


def parse_tree(text: str, file: str) -> Branch:
    """Build the tree of one YAML document.

    >>> parse_tree("a: {b: 1}", "x.yaml").children["a"].children["b"]
    Leaf(position=Position(file='x.yaml', line=1, column=8), size=1)
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > MAX_LINE:
            raise ConfigError(
                f"a line is longer than {MAX_LINE} characters", where=str(Position(file, number))
            )
    builder = _Builder(file)
    for event in _events(text, file):
        builder.take(event)
    root = builder.root
    if root is None or (isinstance(root, Leaf) and root.text is None):
        return Branch({}, Position(file))
    if isinstance(root, Leaf) or root.is_list:
        raise ConfigError("the file must be a mapping of settings", where=str(root.position))
    return root


def _events(text: str, file: str) -> Iterator[Event]:
    """Translate every way in which the YAML parser can fail.

    `from None`: the parser's own errors quote the lines around, and a password may stand there.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        position = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file)
        raise ConfigError("this is not YAML", where=str(position), why=exc.problem or exc.context) from None
    except YAMLError as exc:
        raise ConfigError("this is not YAML", where=file, why=str(exc).partition("\n")[0]) from None
    # An escape beyond Unicode or a broken directive escapes the parser as one of these.
    except (ValueError, OverflowError, LookupError, AttributeError, AssertionError) as exc:
        raise ConfigError("this is not YAML", where=file, why=str(exc) or type(exc).__name__) from None


@dataclass(slots=True)
class _Open:
    """A branch that is still being filled."""

    position: Position
    is_list: bool
    anchor: str | None
    children: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Position] = field(default_factory=dict)
    key: str | None = None
    size: int = 1

    @property
    def wants_key(self) -> bool:
        return not self.is_list and self.key is None


class _Builder:
    """Takes the parser's events one by one on a stack of its own: no recursion, bounds at each step."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0

    def take(self, event: Event) -> None:
        handler = _HANDLERS.get(type(event).__name__)
        if handler is not None:
            mark = event.start_mark
            handler(self, event, Position(self.file, mark.line + 1, mark.column + 1))

    def document(self, _event: Any, position: Position) -> None:
        self._documents += 1
        if self._documents > 1:
            raise ConfigError("the file holds more than one YAML document", where=str(position))

    def scalar(self, event: Any, position: Position) -> None:
        if self._stack and self._stack[-1].wants_key:
            self._key(event.value, position)
            return
        null = event.style is None and event.value in _NULLS
        self._put(Leaf(None if null else event.value, position), event.anchor)

    def alias(self, event: Any, position: Position) -> None:
        # An anchor is known only when its branch is closed, so that none can contain itself.
        node = self._anchors.get(event.anchor)
        if node is None or (self._stack and self._stack[-1].wants_key):
            raise ConfigError(f"the alias *{event.anchor} cannot be used here", where=str(position))
        self._put(node, None)

    def begin_mapping(self, event: Any, position: Position) -> None:
        self._begin(_Open(position, is_list=False, anchor=event.anchor))

    def begin_list(self, event: Any, position: Position) -> None:
        self._begin(_Open(position, is_list=True, anchor=event.anchor))

    def end(self, _event: Any, _position: Position) -> None:
        done = self._stack.pop()
        self._put(Branch(done.children, done.position, done.keys, done.is_list, done.size), done.anchor)

    def _begin(self, branch: _Open) -> None:
        if self._stack and self._stack[-1].wants_key:
            raise ConfigError("a key must be a single word", where=str(branch.position))
        if len(self._stack) >= MAX_DEPTH:
            raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", where=str(branch.position))
        self._stack.append(branch)

    def _key(self, name: str, position: Position) -> None:
        parent = self._stack[-1]
        if name in parent.keys:
            first = parent.keys[name].line
            raise ConfigError(
                f"the key '{name}' stands twice", where=str(position), why=f"first in line {first}"
            )
        parent.key, parent.keys[name] = name, position

    def _put(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.size += node.size
        if parent.size > MAX_VALUES:
            raise ConfigError(f"more than {MAX_VALUES} values, aliases expanded", where=str(node.position))
        name = str(len(parent.children)) if parent.is_list else parent.key or ""
        parent.children[name] = node
        parent.key = None


_HANDLERS: Final[Mapping[str, Callable[[_Builder, Any, Position], None]]] = {
    "DocumentStartEvent": _Builder.document,
    "ScalarEvent": _Builder.scalar,
    "AliasEvent": _Builder.alias,
    "MappingStartEvent": _Builder.begin_mapping,
    "MappingEndEvent": _Builder.end,
    "SequenceStartEvent": _Builder.begin_list,
    "SequenceEndEvent": _Builder.end,
}
