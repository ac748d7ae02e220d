"""The global options of one invocation, as one frozen value that every verb can ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import Config

__all__ = ["Format", "Settings", "configuration", "current", "scope", "use"]


class Format(StrEnum):
    """The forms in which rows are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the flags before (or after) the verb said."""

    context: str | None = None
    contract: Path | None = None
    """None: asyncapi.yaml, found upwards."""
    overrides: tuple[str, ...] = ()
    """The -X key=value flags, in their order."""
    output: Format = Format.TABLE
    quiet: bool = False
    verbosity: int = 0
    color: bool = True
    yes: bool = False

    def merged(
        self,
        *,
        context: str | None = None,
        contract: Path | None = None,
        overrides: list[str] | None = None,
        output_format: Format | None = None,
        quiet: bool = False,
        verbose: int = 0,
        no_color: bool = False,
        yes: bool = False,
    ) -> Settings:
        """Return these settings with the flags that were given on top; a flag left out changes nothing."""
        return Settings(
            context=context or self.context,
            contract=contract or self.contract,
            overrides=(*self.overrides, *(overrides or ())),
            output=output_format or self.output,
            quiet=quiet or self.quiet,
            verbosity=self.verbosity + verbose,
            color=self.color and not no_color,
            yes=yes or self.yes,
        )


_OF_ONE_INVOCATION = ("PENSTOCK_CONTRACT_ROOT", "PENSTOCK_CONTRACT_REMOTE")
"""Variables that are as they were before when an invocation ends."""
_DEFAULTS = Settings()
_CURRENT: ContextVar[Settings] = ContextVar("penstock.cli.settings", default=_DEFAULTS)
_LOADED: ContextVar[dict[Settings, Config] | None] = ContextVar("penstock.cli.configuration", default=None)


def current() -> Settings:
    """Return the settings of this invocation; the defaults outside of one.

    >>> current().output
    <Format.TABLE: 'table'>
    """
    return _CURRENT.get()


def use(settings: Settings) -> None:
    """Make `settings` the current ones until the scope ends."""
    _CURRENT.set(settings)


@contextmanager
def scope() -> Iterator[None]:
    """Begin an invocation with default settings and restore the outer ones after it."""
    settings, loaded = _CURRENT.set(_DEFAULTS), _LOADED.set({})
    before = {name: os.environ.get(name) for name in _OF_ONE_INVOCATION}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        _CURRENT.reset(settings)
        _LOADED.reset(loaded)


def configuration() -> Config:
    """Give the configuration with the flags of this invocation as its last layer; it is loaded once.

    What the layers below and child processes must know goes into the environment, where they look.
    """
    loaded = _LOADED.get()
    if loaded is None:
        return _load(current())
    if current() not in loaded:
        loaded[current()] = _load(current())
    return loaded[current()]


def _load(settings: Settings) -> Config:
    from penstock.cli import output
    from penstock.config import load
    from penstock.config.values import DEFAULT

    contract = str(settings.contract) if settings.contract else None
    config = load(context=settings.context, contract=contract, overrides=settings.overrides)
    for name in ("home", "java_home", "contract_root", "contract_remote"):
        value = config.value(name)
        if value.text is not None and value.origin != DEFAULT:
            found = value.get()
            os.environ[str(value.key.variable)] = (
                str(found).lower() if isinstance(found, bool) else str(found)
            )
    for warning in config.warnings:
        output.talk(f"warning: {warning}")
    return config
