"""Where the named types of Avro are that a schema uses and does not define.

They are looked for in the folder of the schema, in a file that is named like the type first, and in the Avro
files to which the document refers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from penstock.contract.avro_types import defined_names, missing_types
from penstock.contract.files import CannotRead, Forbidden
from penstock.contract.library import Library
from penstock.contract.node import JsonValue, Node, plain
from penstock.contract.pointer import MalformedReference, Reference, parse_reference
from penstock.contract.shape import Reading

__all__ = ["find_types"]

SUFFIX = ".avsc"


def find_types(
    reading: Reading, schema: JsonValue, file: str, write_out: Callable[[Node], JsonValue]
) -> dict[str, JsonValue]:
    """Give the schemas of the other files that a schema of a file needs, by each name that they define.

    `write_out` gives the schema at a node with its references replaced.
    """
    if reading.avro_files is None:
        reading.avro_files = _AvroFiles(reading.library)
    files: _AvroFiles = reading.avro_files
    found: dict[str, JsonValue] = {}
    todo = [(missing.name, file) for missing in missing_types(schema)]
    asked: set[tuple[str, str]] = set()
    while todo:
        name, base = todo.pop()
        if name in found or (name, base) in asked:
            continue
        asked.add((name, base))
        tree = files.locate(name, base)
        if tree is not None:
            definition = write_out(tree)
            found |= dict.fromkeys(defined_names(definition) - found.keys(), definition)
            todo += [(missing.name, tree.file) for missing in missing_types(definition)]
    return found


class _AvroFiles:
    """The Avro files of one contract, each looked into once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._folders: dict[str, dict[str, str]] = {}
        """The file of each type, by folder."""
        self._unread: dict[str, frozenset[str]] = {}
        """Files of a folder that cannot be read."""
        self._referred: dict[str, tuple[str, str]] | None = None

    def locate(self, name: str, base: str) -> Node | None:
        """Find the file that defines a type, and read it as a part of the contract."""
        folder = os.path.dirname(base)
        if folder not in self._folders:
            self._look_into(folder, base)
        location = self._folders[folder].get(name)
        if location is not None:
            return self._open(location, base)
        for stem in (name, name.rpartition(".")[2]):
            if f"{stem}{SUFFIX}" in self._unread[folder]:
                self._open(f"{stem}{SUFFIX}", base)  # it says why it cannot be read
        if self._referred is None:
            self._referred = dict(self._types_referred_to())
        return self._open(*self._referred[name]) if name in self._referred else None

    def _look_into(self, folder: str, base: str) -> None:
        known: dict[str, str] = {}
        unread = []
        for location in self._library.files.beside(base, SUFFIX):
            tree = self._library.files.peek(location, base)
            if tree is None:
                unread.append(location)
            for name in defined_names(plain(tree)) if tree is not None else ():
                stem = location.removesuffix(SUFFIX)
                if name not in known or stem in (name, name.rpartition(".")[2]):
                    known[name] = location
        self._folders[folder], self._unread[folder] = known, frozenset(unread)

    def _open(self, location: str, base: str) -> Node | None:
        try:
            return self._library.files.open(Reference(location, False, ()), base)
        except (CannotRead, Forbidden):
            return None

    def _types_referred_to(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Give the types of every Avro file on this machine to which the document itself refers."""
        todo = [self._library.root] if self._library.root is not None else []
        seen: set[str] = set()
        while todo:
            node = todo.pop()
            location = _location(node.reference or "")
            if location and location not in seen:
                seen.add(location)
                tree = self._library.files.peek(location, node.file)
                for name in defined_names(plain(tree)) if tree is not None else ():
                    yield name, (location, node.file)
            value = node.value
            if isinstance(value, dict | list):
                todo += value.values() if isinstance(value, dict) else value


def _location(text: str) -> str:
    """Give the Avro file that a reference names; empty if it names none, or one on the network."""
    try:
        reference = parse_reference(text)
    except MalformedReference:
        return ""
    return "" if reference.remote or not reference.location.endswith(SUFFIX) else reference.location
