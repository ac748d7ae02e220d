"""One effective value: its row in the table, its text, and the place that said it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.config.files import located
from penstock.config.keys import Key
from penstock.config.secret import (
    MASK,
    Reference,
    Secret,
    check_references,
    has_reference,
    is_reference,
    mask_address,
    resolve,
)
from penstock.errors import ConfigError

__all__ = ["DEFAULT", "Origin", "Value"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from; relative paths in it start at `folder`."""

    place: str
    folder: Path = Path()
    generated: bool = False
    """Written by Penstock itself, such as the context of the development servers."""

    def __str__(self) -> str:
        return self.place


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Value:
    """A text that fits its row; references in it are looked up by `get`."""

    name: str
    key: Key
    text: str | None = field(repr=False)
    """As it was written; a plain secret too, so it stays out of the repr."""
    origin: Origin

    def get(self) -> object:
        """Give the value in its type; None when nobody set it."""
        if self.text is None:
            return None
        if self.key.kind.secret:
            return Secret(Reference(self.text, self._where, self.origin.folder))
        return self._parsed(self._resolved())

    def check(self) -> None:
        """Refuse a text that cannot be parsed; one with references is checked when it is asked for."""
        if self.text is None:
            return
        check_references(self.text, where=self._where)
        if not has_reference(self.text):
            self._parsed(self.text)

    def shown(self) -> str | None:
        """Give the text for people, with everything secret masked."""
        if self.text is None:
            return None
        if not self.key.kind.secret:
            return mask_address(self.text)
        return f"{MASK} from {self.text}" if is_reference(self.text) else MASK

    @property
    def is_plain_secret(self) -> bool:
        """Say whether a secret stands here for everybody to read."""
        return self.key.kind.secret and self.text is not None and not has_reference(self.text)

    @property
    def _where(self) -> str:
        return f"{self.origin}  {self.name}"

    def _resolved(self) -> str:
        return resolve(self.text or "", where=self._where, folder=self.origin.folder)

    def _parsed(self, text: str) -> object:
        try:
            value = self.key.kind.parse(text)
        except ValueError as exc:
            raise ConfigError(
                f"{self.name} cannot be used: {exc}",
                where=self._where,
                why=self.key.doc,
                next=f"give it as {self.key.kind.name}",
            ) from exc
        return located(self.origin.folder / value) if isinstance(value, Path) else value
