"""Traits merged into their target before anything is read (AsyncAPI 3, Traits Merge Mechanism).

JSON Merge Patch (RFC 7396), traits in their order and the target last, so that the target wins. The
merged node keeps the places of what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.contract.node import Node
from penstock.contract.readers import follow
from penstock.contract.shape import Part, Reading, read_part

__all__ = ["with_traits"]


def with_traits(cls: type[Part], store: str, trait_store: str) -> Callable[[Reading, Node], Any]:
    """Make a reader of an object that may have traits, or of a reference to one."""

    def read(reading: Reading, node: Node) -> Part | None:
        target = follow(reading, node, store)
        return None if target is None else read_part(cls, reading, _merged(reading, target, trait_store))

    return read


def _merged(reading: Reading, target: Node, trait_store: str) -> Node:
    traits = target.get("traits")
    if traits is None or not isinstance(traits.value, list) or not traits.value:
        return target
    if id(target) not in reading.merged:
        layers = [follow(reading, trait, trait_store) for trait in traits.value]
        merged = Node({}, target.file, target.line, target.column, target.path)
        for layer in [*layers, target]:
            if layer is not None and isinstance(layer.value, dict):
                merged = _patched(reading, merged, layer)
        reading.merged[id(target)] = _at(merged, target)
    return reading.merged[id(target)]


def _patched(reading: Reading, base: Node, patch: Node) -> Node:
    result = dict(base.value) if isinstance(base.value, dict) else {}
    keys = dict(base.keys)
    for key, child in (patch.value if isinstance(patch.value, dict) else {}).items():
        if child.value is None:
            result.pop(key, None)
            continue
        result[key] = _combined(reading, result.get(key), child)
        keys[key] = patch.keys.get(key, (patch.line, patch.column))
    merged = Node(result, patch.file, patch.line, patch.column, patch.path)
    merged.keys = keys
    return merged


def _combined(reading: Reading, old: Node | None, new: Node) -> Node:
    """Two objects are joined, anything else is replaced; references are followed to join what they name."""
    if old is None or not isinstance(old.value, dict) or not isinstance(new.value, dict):
        return new
    base = reading.library.resolve(old)
    patch = reading.library.resolve(new)
    if base is None or patch is None or not isinstance(base.value, dict) or not isinstance(patch.value, dict):
        return new
    merged = _patched(reading, base, patch)
    reading.made.append(merged)
    return merged


def _at(node: Node, target: Node) -> Node:
    node.file, node.line, node.column, node.path = target.file, target.line, target.column, target.path
    return node
