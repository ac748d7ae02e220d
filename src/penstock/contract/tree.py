"""Builds nodes from the events of a YAML or JSON parser, within bounds, with each key once.

An alias shares the node of its anchor, so a small file stays small in memory; what a walk over it would
cost is counted and bounded, and an anchor cannot contain itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from penstock.contract.finding import Position, Report, Rule
from penstock.contract.node import Node, NodeValue, dotted
from penstock.contract.rules import reading

__all__ = ["MAX_DEPTH", "MAX_WEIGHT", "TreeBuilder", "Unreadable"]

MAX_DEPTH: Final = 100
MAX_WEIGHT: Final = 500_000


class Unreadable(Exception):
    """Reading stops here; the finding is already in the report."""


class _Frame:
    __slots__ = ("anchor", "key", "merged", "node")

    def __init__(self, node: Node, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: str | None = None
        self.merged: list[Node] = []


class TreeBuilder:
    """Takes events one by one; `root` is the finished tree."""

    def __init__(self, file: str, report: Report) -> None:
        self.file = file
        self.report = report
        self.root: Node | None = None
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}

    def wants_key(self) -> bool:
        """Say whether the next event is the key of an object."""
        if not self._stack:
            return False
        frame = self._stack[-1]
        return frame.key is None and type(frame.node.value) is dict

    def key(self, text: str, line: int, column: int) -> None:
        """Take the key of the next value."""
        frame = self._stack[-1]
        frame.key = text
        if text in frame.node.keys and text != "<<":
            self.report.add_at(reading.DUPLICATE_KEY, self._here(line, column), key=text)
        frame.node.keys.setdefault(text, (line, column))

    def value(self, value: NodeValue, line: int, column: int, anchor: str | None = None) -> None:
        """Take a scalar."""
        node = Node(value, self.file, line, column, self._path())
        self._place(node)
        if anchor is not None:
            self._anchors[anchor] = node

    def begin(self, value: NodeValue, line: int, column: int, anchor: str | None = None) -> None:
        """Open an object (an empty dict) or a list (an empty list)."""
        if self.wants_key():
            self.stop(
                reading.NOT_JSON_DATA, line, column, "a key must be a text, here it is an object or a list"
            )
        if len(self._stack) >= MAX_DEPTH:
            self.stop(reading.TOO_LARGE, line, column, f"it is nested deeper than {MAX_DEPTH} levels")
        self._stack.append(_Frame(Node(value, self.file, line, column, self._path()), anchor))
        if anchor is not None:
            self._anchors[anchor] = None

    def end(self) -> None:
        """Close the innermost object or list."""
        frame = self._stack.pop()
        for source in frame.merged:
            _merge(frame.node, source)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.node
        self._place(frame.node)

    def alias(self, name: str, line: int, column: int) -> None:
        """Take an alias: the node that its anchor named."""
        if name not in self._anchors:
            self.stop(reading.SYNTAX, line, column, f"the alias *{name} has no anchor before it")
        target = self._anchors[name]
        if target is None:
            self.stop(reading.TOO_LARGE, line, column, f"the anchor &{name} contains itself")
        if self.wants_key():
            self.stop(reading.NOT_JSON_DATA, line, column, "a key must be a text, here it is an alias")
        self._place(target)

    def stop(self, rule: Rule, line: int, column: int, problem: str) -> NoReturn:
        """Report and give up."""
        self.report.add_at(rule, self._here(line, column), problem=problem)
        raise Unreadable(problem)

    def _place(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        parent = frame.node
        self._account(parent, node)
        if type(parent.value) is list:
            parent.value.append(node)
            return
        key, frame.key = frame.key or "", None
        if key == "<<":
            frame.merged.extend(_merge_sources(node))
        elif type(parent.value) is dict:
            parent.value.setdefault(key, node)

    def _account(self, parent: Node, node: Node) -> None:
        parent.weight += node.weight
        if node.height >= parent.height:
            parent.height = node.height + 1
        if parent.weight > MAX_WEIGHT:
            self.stop(
                reading.TOO_LARGE, node.line, node.column, f"it expands to more than {MAX_WEIGHT} values"
            )
        if len(self._stack) + node.height > MAX_DEPTH:
            self.stop(
                reading.TOO_LARGE, node.line, node.column, f"it is nested deeper than {MAX_DEPTH} levels"
            )

    def _path(self) -> tuple[str | int, ...]:
        if not self._stack:
            return ()
        frame = self._stack[-1]
        parent = frame.node
        step = len(parent.value) if type(parent.value) is list else frame.key or ""
        return (*parent.path, step)

    def _here(self, line: int, column: int) -> Position:
        return Position(self.file, line, column, dotted(self._path()))


def _merge_sources(node: Node) -> Iterator[Node]:
    """YAML's merge key takes one object or a list of them, the earlier one winning."""
    candidates = node.value if isinstance(node.value, list) else [node]
    return (candidate for candidate in candidates if isinstance(candidate.value, dict))


def _merge(node: Node, source: Node) -> None:
    if not isinstance(node.value, dict) or not isinstance(source.value, dict):
        return
    for key, child in source.value.items():
        if key not in node.value:
            node.value[key] = child
            node.keys.setdefault(key, source.keys.get(key, (source.line, source.column)))
