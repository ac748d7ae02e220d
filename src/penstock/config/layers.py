"""The layers of configuration, each over the one before: default, file, environment, flag.

The file is `penstock.yaml`, found upwards; below it lies `.penstock/dev.yaml` of the same folder, which
`penstock dev up` writes. Every effective value keeps its origin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from penstock.config.contexts import Context
from penstock.config.keys import KEYS, Key, did_you_mean, find_key, is_name, names_below
from penstock.config.tree import Branch, Leaf, Node, read_tree
from penstock.config.values import DEFAULT, Origin, Value
from penstock.errors import ConfigError

__all__ = ["DEV_FILE", "FILE", "Config", "check_tree", "find_project", "find_upwards", "load"]

FILE: Final = "penstock.yaml"
DEV_FILE: Final = Path(".penstock/dev.yaml")
_REPOSITORY_MARK: Final = ".git"

Values = dict[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True)
class Config:
    """Every effective value by its path, and what should be said about them."""

    values: Mapping[tuple[str, ...], Value]
    folder: Path
    """The project: where the file is, else the working directory."""
    warnings: tuple[str, ...] = ()

    def value(self, name: str) -> Value:
        """Give a setting by its dotted name, with its origin; an unknown name is an error."""
        path = tuple(name.split("."))
        key = find_key(path)
        if key is None:
            raise _unknown(path, "the caller")
        return self.values.get(path) or Value(name, key, key.default, DEFAULT)

    def get(self, name: str) -> object:
        """Give a setting in its type, references looked up."""
        return self.value(name).get()

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names under `contexts`, in the order of the file."""
        return tuple(dict.fromkeys(path[1] for path in self.values if path[0] == "contexts"))

    def context(self, name: str | None = None) -> Context | None:
        """Give the named context, else the chosen one, else the only one, else None."""
        name = name or self._chosen()
        return None if name is None else self.named_context(name)

    def named_context(self, name: str) -> Context:
        """Give one context; an unknown name is an error that suggests a known one."""
        below = {path[2:]: v for path, v in self.values.items() if path[:2] == ("contexts", name)}
        if not below:
            raise self._no_context(name)
        return Context(name, below)

    def _chosen(self) -> str | None:
        chosen = self.get("context")
        if chosen is None and len(self.context_names) == 1:
            return self.context_names[0]
        return None if chosen is None else str(chosen)

    def _no_context(self, name: str) -> ConfigError:
        chosen = self.value("context")
        if not self.context_names:
            advice = f"add it under `contexts` in {FILE}, or start one: penstock dev up"
        else:
            advice = did_you_mean(name, self.context_names)
        return ConfigError(
            f"there is no context '{name}'",
            where=str(chosen.origin) if chosen.text == name else None,
            next=advice,
        )


def load(
    *,
    start: Path | None = None,
    context: str | None = None,
    contract: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read all layers; the flags are -C (context), -f (contract) and -X (overrides, as KEY=VALUE)."""
    here = _absolute(start)
    folder = _project_folder(here)
    environ = os.environ if environ is None else environ
    values: Values = {}
    for file in (DEV_FILE, Path(FILE)):
        values |= _file_layer(folder, file, here)
    values |= _environment_layer(environ, here)
    values |= _flag_layer({"context": ("-C", context), "contract": ("-f", contract)}, overrides, here)
    for value in values.values():
        value.check()
    return Config({**_defaults(), **values}, folder, (*_plain_secrets(values), *_lookalikes(environ)))


def find_upwards(name: str | Path, start: Path | None = None) -> Path | None:
    """Look for a file in a folder and its parents, up to the root of the repository.

    In a parent in which everybody may write, such as /tmp, one of another user does not count.
    """
    here = _absolute(start)
    for folder in (here, *here.parents):
        if _counts(folder, name, here):
            return folder / name
        if _counts(folder, _REPOSITORY_MARK, here):
            return None
    return None


def _counts(folder: Path, name: str | Path, here: Path) -> bool:
    path = folder / name
    if not os.path.exists(path):  # a folder that may not be entered holds nothing for us
        return False
    try:
        # Mode 0002: everybody may write. Root could put a file anywhere.
        planted = (
            folder != here and os.stat(folder).st_mode & 0o002 and os.lstat(path).st_uid not in _trusted()
        )
    except OSError:
        return False
    return not planted and (name == _REPOSITORY_MARK or os.path.isfile(path))


def _trusted() -> tuple[int, int]:
    return os.geteuid(), 0


def find_project(folder: Path) -> Path:
    """Give the folder of the settings above a folder, else that of its repository, else the folder itself."""
    settings = find_upwards(FILE, folder)
    if settings is not None:
        return settings.parent
    here = _absolute(folder)
    above = (each for each in (here, *here.parents) if _counts(each, _REPOSITORY_MARK, here))
    return next(above, here)


def _absolute(start: Path | None) -> Path:
    try:
        return (start or Path.cwd()).absolute()
    except OSError as exc:
        raise ConfigError("the working directory is gone", next="cd to a folder that exists") from exc


def check_tree(tree: Branch, origin: Origin) -> Values:
    """Give the values of a parsed file by path; a key that is not in the table is an error."""
    return dict(_walk(tree, (), origin))


def _project_folder(here: Path) -> Path:
    main, dev = find_upwards(FILE, here), find_upwards(DEV_FILE, here)
    if main is not None:
        return main.parent
    return dev.parent.parent if dev is not None else here


def _file_layer(folder: Path, file: Path, here: Path) -> Values:
    path = folder / file
    if not os.path.isfile(path):
        return {}
    shown = os.path.relpath(path, here)
    return check_tree(read_tree(path, shown), Origin(shown, folder, generated=file == DEV_FILE))


def _walk(node: Branch, path: tuple[str, ...], origin: Origin) -> Iterator[tuple[tuple[str, ...], Value]]:
    for name, child in node.children.items():
        if name.startswith("x-"):  # room for anchors and notes of the user's own
            continue
        below = (*path, name)
        where = f"{node.keys.get(name, child.position)}  {'.'.join(below)}"
        key = find_key(below)
        if key is not None:
            leaf = _leaf(key, child, where)
            yield from [(below, _value(key, below, leaf, origin))] if leaf.text is not None else []
        else:
            _check_section(below, child, where)
            yield from _walk(child, below, origin) if isinstance(child, Branch) else ()


def _leaf(key: Key, node: Node, where: str) -> Leaf:
    if isinstance(node, Branch):
        name = key.name.rpartition(".")[2]
        raise ConfigError(f"{name} takes one value", where=where, next=f"give it as {key.kind.name}")
    return node


def _value(key: Key, path: tuple[str, ...], node: Leaf, origin: Origin) -> Value:
    place = f"{node.position.file}:{node.position.line}"
    return Value(".".join(path), key, node.text, Origin(place, origin.folder, origin.generated))


def _check_section(path: tuple[str, ...], node: Node, where: str) -> None:
    """Check that a name may stand here and that names stand below it."""
    known = names_below(path[:-1])
    if path[-1] not in known and "*" not in known:
        raise _unknown(path, where)
    if "*" in known and not is_name(path[-1]):
        raise ConfigError(f"'{path[-1]}' is not a name", where=where, next="use letters, digits, - and _")
    if (isinstance(node, Leaf) and node.text is not None) or (isinstance(node, Branch) and node.is_list):
        below = ", ".join(f"<{path[-1]} name>" if name == "*" else name for name in names_below(path))
        raise ConfigError(f"{path[-1]} must be a mapping", where=where, next=f"known below it: {below}")


def _unknown(path: tuple[str, ...], where: str) -> ConfigError:
    """Blame the first step that the table does not know."""
    wrong = next((i for i in range(len(path)) if not _known_step(path[: i + 1])), len(path) - 1)
    known = [name for name in names_below(path[:wrong]) if name != "*"]
    return ConfigError(
        f"there is no setting '{'.'.join(path)}'",
        where=where,
        next=did_you_mean(path[wrong], known) if known else "penstock config show lists them",
    )


def _known_step(path: tuple[str, ...]) -> bool:
    return bool(names_below(path)) or find_key(path) is not None


def _environment_layer(environ: Mapping[str, str], here: Path) -> Values:
    return {
        (*key.name.split("."),): Value(
            key.name, key, environ[key.variable], Origin(f"env {key.variable}", here)
        )
        for key in KEYS
        if key.variable is not None and environ.get(key.variable)
    }


def _flag_layer(own: Mapping[str, tuple[str, str | None]], overrides: Sequence[str], here: Path) -> Values:
    flags = [("-X", *_split(text)) for text in overrides]
    flags += [(flag, name, text) for name, (flag, text) in own.items() if text is not None]
    return {tuple(name.split(".")): _flag(flag, name, text, here) for flag, name, text in flags}


def _flag(flag: str, name: str, text: str, here: Path) -> Value:
    path = tuple(name.split("."))
    key = find_key(path)
    if key is None:
        raise _unknown(path, f"flag {flag}")
    return Value(name, key, text, Origin(f"flag {flag}", here))


def _split(override: str) -> tuple[str, str]:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ConfigError("-X takes KEY=VALUE", next="write it as -X connect_timeout=10s")  # may be a secret
    return name.strip(), text


def _defaults() -> Values:
    settings = (key for key in KEYS if key.variable is not None)
    return {(*key.name.split("."),): Value(key.name, key, key.default, DEFAULT) for key in settings}


def _plain_secrets(values: Values) -> Iterator[str]:
    for value in values.values():
        if value.is_plain_secret and not value.origin.generated:
            word = value.name.rpartition(".")[2]
            yield f"{value.origin} holds a {word} in plain text; better ${{env:NAME}} or ${{file:PATH}}"


def _lookalikes(environ: Mapping[str, str]) -> Iterator[str]:
    known = [key.variable for key in KEYS if key.variable is not None]
    for name in environ:
        near = get_close_matches(name, known, n=1, cutoff=0.85) if name.startswith("PENSTOCK_") else []
        if near and name not in known:
            yield f"the environment variable {name} means nothing here; did you mean {near[0]}?"
