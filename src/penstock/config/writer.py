"""Changes a configuration file: whole or not at all, readable by its owner only, comments kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from penstock.config.layers import check_tree
from penstock.config.secret import Secret
from penstock.config.tree import parse_tree, read_tree
from penstock.config.values import Origin
from penstock.errors import ConfigError

__all__ = ["choose_context", "remove_context", "write_context"]


def write_context(path: Path, name: str, context: Mapping[str, object]) -> None:
    """Put a context into a file, made if it is not there; `context` has the shape it has in the file."""
    plain = _plain(context, f"contexts.{name}")

    def change(document: Any) -> None:
        if document.get("contexts") is None:
            document["contexts"] = {}
        document["contexts"][name] = plain

    _edit(path, change)


def remove_context(path: Path, name: str) -> None:
    """Take a context out of a file; it is no error if it is not there."""

    def change(document: Any) -> None:
        (document.get("contexts") or {}).pop(name, None)

    if path.exists():
        _edit(path, change)


def choose_context(path: Path, name: str) -> None:
    """Write `context: NAME` into a file."""

    def change(document: Any) -> None:
        document["context"] = name

    _edit(path, change)


def _plain(value: object, name: str) -> object:
    if isinstance(value, Secret):
        raise ConfigError(
            f"{name} is a secret and is not written to a file", next="write ${env:NAME} or ${file:PATH}"
        )
    if isinstance(value, Mapping):
        return {str(key): _plain(child, f"{name}.{key}") for key, child in value.items()}
    return value if isinstance(value, int) else str(value)


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    """Read with the strict reader first; what the change made of it must pass the same table."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML(typ="rt")
    document: Any = CommentedMap()
    if path.exists():
        read_tree(path, str(path))
        document = yaml.load(path.read_text(encoding="utf-8-sig")) or document
    change(document)
    stream = StringIO()
    yaml.dump(document, stream)
    check_tree(parse_tree(stream.getvalue(), str(path)), Origin(str(path)))
    _replace(path, stream.getvalue())


def _replace(path: Path, text: str) -> None:
    """Write beside the file and rename: a reader sees the old text or the new one, never a half."""
    path = path.resolve()  # a link stays a link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives mode 0600
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror}", where=str(path)) from exc
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            os.chmod(fresh, path.stat().st_mode & 0o777)
        os.replace(fresh, path)
    except OSError as exc:
        Path(fresh).unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {exc.strerror}", where=str(path)) from exc
