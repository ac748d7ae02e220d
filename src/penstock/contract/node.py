"""A value of the document that knows where it stands: file, line, column and path.

A node's value is a dict of nodes, a list of nodes, or a JSON scalar. Nodes are made by the parser and
never changed after it.
"""

from __future__ import annotations

from typing import Final

from penstock.contract.finding import MAX_QUOTED, Position

__all__ = ["JsonValue", "Node", "NodeValue", "dotted", "kind_of", "plain"]

JsonScalar = str | int | float | bool | None
JsonValue = JsonScalar | list["JsonValue"] | dict[str, "JsonValue"]
NodeValue = JsonScalar | list["Node"] | dict[str, "Node"]

_KINDS: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


_NO_KEYS: Final[dict[str, tuple[int, int]]] = {}
MAX_STEPS: Final = 16


class Node:
    """One value with its place."""

    __slots__ = ("column", "file", "height", "keys", "line", "path", "value", "weight")

    def __init__(
        self,
        value: NodeValue,
        file: str = "",
        line: int = 1,
        column: int = 1,
        path: tuple[str | int, ...] = (),
    ) -> None:
        self.value = value
        self.file = file
        self.line = line
        self.column = column
        self.path = path
        self.keys: dict[str, tuple[int, int]] = {} if type(value) is dict else _NO_KEYS
        """Where each key of an object stands."""
        self.weight = 1
        """How many nodes a walk from here visits, aliases counted each time."""
        self.height = 1
        """How many levels of nodes there are from here down."""

    def __repr__(self) -> str:
        return f"<Node {kind_of(self.value)} {self.position()}>"

    def position(self, key: str | None = None) -> Position:
        """Give the place of this value, or of one of its keys."""
        if key is None:
            return Position(self.file, self.line, self.column, dotted(self.path))
        line, column = self.keys.get(key, (self.line, self.column))
        return Position(self.file, line, column, dotted((*self.path, key)))

    def get(self, key: str) -> Node | None:
        """Give the child of that name if this is an object that has one."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    @property
    def reference(self) -> str | None:
        """The text of `$ref` if this is a Reference Object."""
        ref = self.get("$ref")
        return ref.value if ref is not None and isinstance(ref.value, str) else None


def kind_of(value: object) -> str:
    """Name a value's JSON type in words.

    >>> kind_of({}), kind_of(True), kind_of(None)
    ('an object', 'a boolean', 'null')
    """
    return _KINDS.get(type(value), "something else")


def plain(node: Node) -> JsonValue:
    """Give the value without places; depth and size were bounded by the parser."""
    value = node.value
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    return value


def dotted(path: tuple[str | int, ...]) -> str:
    """Write a path for people.

    >>> dotted(("channels", "paid", "messages", 0, "cleanup.policy"))
    "channels.paid.messages[0]['cleanup.policy']"
    """
    shown = path if len(path) <= MAX_STEPS else (*path[: MAX_STEPS - 1], "...", path[-1])
    return "".join(_step(step) for step in shown).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    plain_word = step.replace("-", "_").replace("$", "_").isidentifier() or step == "..."
    return f".{step}" if plain_word else f"[{step[:MAX_QUOTED]!r}]"
