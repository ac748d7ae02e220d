"""Follows `$ref` from node to node, across files, with circles found and each problem told once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.contract.files import Access, CannotRead, Files, Forbidden
from penstock.contract.finding import Report
from penstock.contract.node import Node
from penstock.contract.pointer import MalformedReference, index_of, parse_reference
from penstock.contract.rules import references as rules

__all__ = ["Library"]

MAX_THROUGH: Final = 20


class Library:
    """All nodes of one contract; `root` is the document, None if it cannot be read."""

    def __init__(self, root: Path, report: Report, access: Access, raw: bytes | None = None) -> None:
        self.report = report
        self.files = Files(root, access, report)
        self.root_file = str(root)
        self.root = self.files.open_root(raw)
        self._hops: dict[int, Node | None] = {}
        self._walking: set[int] = set()

    def resolve(self, node: Node) -> Node | None:
        """Follow a node until it is no reference; None if that fails, which is reported."""
        seen: set[int] = set()
        at: Node | None = node
        while at is not None and "$ref" in (at.value if isinstance(at.value, dict) else ()):
            if id(at) in seen:
                self.report.add(rules.LOOP, at, reference=at.reference or "")
                return None
            seen.add(id(at))
            at = self.hop(at)
        return at

    def hop(self, node: Node) -> Node | None:
        """Follow a reference one step."""
        if id(node) not in self._hops:
            self._hops[id(node)] = self._hop(node)
        return self._hops[id(node)]

    def _hop(self, node: Node) -> Node | None:
        self._warn_about_siblings(node)
        text = node.reference
        if text is None:
            self.report.add(rules.MALFORMED, node, key="$ref", problem="it is not a text")
            return None
        if id(node) in self._walking:
            self.report.add(rules.LOOP, node, reference=text)
            return None
        if len(self._walking) >= MAX_THROUGH:
            self.report.add(rules.MALFORMED, node, problem="its path leads through too many other references")
            return None
        self._walking.add(id(node))
        try:
            return self._target(node, text)
        finally:
            self._walking.discard(id(node))

    def _target(self, node: Node, text: str) -> Node | None:
        try:
            reference = parse_reference(text)
            tree = self.files.open(reference, node.file)
        except MalformedReference as exc:
            self.report.add(rules.MALFORMED, node, problem=str(exc))
            return None
        except Forbidden as exc:
            self.report.add(rules.OUTSIDE, node, reference=text, problem=str(exc))
            return None
        except CannotRead as exc:
            self.report.add(rules.CANNOT_READ, node, reference=text, problem=str(exc))
            return None
        return None if tree is None else self._walk(node, tree, reference.tokens, text)

    def _walk(self, node: Node, tree: Node, tokens: tuple[str, ...], text: str) -> Node | None:
        at = tree
        for token in tokens:
            step = self._step(at, token)
            if step is None:
                self.report.add(rules.DANGLING, node, reference=text)
                return None
            at = step
        return at

    def _step(self, at: Node, token: str) -> Node | None:
        """Go one token down; a path may lead through objects that are references themselves."""
        value = at.value
        if isinstance(value, list):
            index = index_of(token)
            return value[index] if index is not None and index < len(value) else None
        child = at.get(token)
        if child is not None or at.reference is None:
            return child
        beyond = self.resolve(at)
        return None if beyond is None else self._step(beyond, token)

    def _warn_about_siblings(self, node: Node) -> None:
        siblings = [key for key in node.value if key != "$ref"] if isinstance(node.value, dict) else []
        if siblings:
            self.report.add(rules.IGNORED_SIBLINGS, node, key=siblings[0], siblings=", ".join(siblings[:5]))
