"""Where a plan finds its event in a DataFrame: attributes, the values at data paths, key and moment.

Data paths are columns of tagged text (`reference.data.tagged`): a decoder that has parsed the data gives
them, or `jsontext.with_paths` makes them of the JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.events.rules import CORE
from penstock.pipeline.plan.nodes import Step

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Binding", "path_column"]


def path_column(path: tuple[Step, ...]) -> str:
    """Give the name of the column that holds the value at a path.

    >>> path_column(("items", 0, "net price"))
    '_data_6974656d73_0_6e6574207072696365'
    """
    # Hexadecimal: a member may have any name, and names of columns have no case in Spark.
    parts = (f"_{step}" if isinstance(step, int) else f"_{step.encode().hex() or 'x'}" for step in path)
    return "_data" + "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Names of columns; the defaults are the event columns of the codec."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Attributes that have a column of another name, or extensions that have one of their own."""
    extensions: str | None = "extensions"
    """A map<string,string> for all other extensions; None: an extension without a column is always null."""
    data: str = "data"
    """The data as binary; null if there is none."""
    json: str | None = None
    """A boolean column: the data is JSON. None: by datacontenttype alone."""
    key: str = "key"
    unreadable: str = "_data_unreadable"
    """A boolean column, made by `with_paths` or a decoder: the data claims to be JSON and is not."""

    def attribute(self, name: str) -> Column:
        """Give the column of an attribute."""
        if name in self.columns:
            return F.col(self.columns[name])
        if name in CORE:
            return F.col(name)
        if self.extensions is None:
            return F.lit(None).cast("string")
        return F.try_element_at(F.col(self.extensions), F.lit(name))

    def path(self, path: tuple[Step, ...]) -> Column:
        """Give the column of the tagged text at a path."""
        return F.col(path_column(path))

    @property
    def now(self) -> Column:
        """The moment of the batch, in microseconds."""
        return F.unix_micros(F.current_timestamp())
