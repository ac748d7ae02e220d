"""Which values may meet, and which conversion brings them together: the typing rules, as tables.

Three kinds of value have no type of their own. A *JSON value* takes the type of the other side and is null
where it is of another: `data.total >= 100` is null, not true, for the string "250". An *attribute* is text
by transport and is read as what it is compared with. A *text* becomes a moment where one is wanted. Nothing
else changes its type by itself, but for text functions, LIKE, `||` and `set`, which take any scalar as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.pipeline.plan.nodes import Attribute, Call, Coalesce, If, Node, Text, Time, Type
from penstock.pipeline.plan.times import TIMESTAMPS, literal_time
from penstock.pipeline.plan.typing import type_of

__all__ = ["NotConvertible", "compared_type", "converted"]


class NotConvertible(Exception):
    """A value cannot take a type; `what` and `fix` are words for a finding."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def _call(function: str) -> Callable[[Node], Node]:
    return lambda node: Call(function, (node,))


def _time_of_text(node: Node) -> Node:
    if not isinstance(node, Text):
        return Call("time_of_text", (node,))
    micros = literal_time(node.value)
    if micros is None:
        raise NotConvertible(f"'{node.value[:60]}' is not a time", "write it as '2024-01-31T12:00:00Z'")
    return Time(micros)


def _attribute_only(function: str) -> Callable[[Node], Node]:
    def convert(node: Node) -> Node:
        if isinstance(node, Attribute):
            return Call(function, (node,))
        wanted = function.partition("_")[0]
        if isinstance(node, Text):
            raise NotConvertible(f"'{node.value[:60]}' is text, not a {wanted}", "write it without quotes")
        raise NotConvertible(f"this is text, not a {wanted}", "say how to read it with CAST(... AS ...)")

    return convert


_IMPLICIT: Final[Mapping[tuple[Type, Type], Callable[[Node], Node]]] = {
    (Type.JSON, Type.NUMBER): _call("number_of_json"),
    (Type.JSON, Type.TEXT): _call("string_of_json"),
    (Type.JSON, Type.BOOLEAN): _call("boolean_of_json"),
    (Type.JSON, Type.TIME): lambda node: Call("time_of_text", (Call("string_of_json", (node,)),)),
    (Type.TEXT, Type.TIME): _time_of_text,
    (Type.TEXT, Type.NUMBER): _attribute_only("number_of_text"),
    (Type.TEXT, Type.BOOLEAN): _attribute_only("boolean_of_text"),
}
_AS_TEXT: Final[Mapping[Type, Callable[[Node], Node]]] = {
    Type.JSON: _call("text_of_json"),
    Type.NUMBER: _call("text_of_number"),
    Type.BOOLEAN: _call("text_of_boolean"),
    Type.TIME: _call("text_of_time"),
}


def converted(node: Node, want: Type, *, scalar_text: bool = False) -> Node:
    """Give the node as the wanted type; with `scalar_text` any scalar may become text."""
    found = type_of(node)
    if found in (want, Type.NULL):
        return node
    if isinstance(node, If | Coalesce) and found is Type.JSON:
        return _inside(node, want, scalar_text)
    convert = _AS_TEXT.get(found) if scalar_text and want is Type.TEXT else _IMPLICIT.get((found, want))
    if convert is None:
        raise NotConvertible(f"this is {_article(found)}, and {_article(want)} is needed", _FIXES[want])
    return convert(node)


def _inside(node: If | Coalesce, want: Type, scalar_text: bool) -> Node:
    """Convert the branches: the type of the one that is taken counts."""
    if isinstance(node, Coalesce):
        return Coalesce(tuple(converted(each, want, scalar_text=scalar_text) for each in node.operands))
    then, otherwise = (converted(each, want, scalar_text=scalar_text) for each in (node.then, node.otherwise))
    return If(node.condition, then, otherwise)


_FIXES: Final[Mapping[Type, str]] = {
    Type.BOOLEAN: "compare it with something",
    Type.NUMBER: "use CAST(... AS DECIMAL(37,18)) if its text is a number",
    Type.TEXT: "use CAST(... AS STRING)",
    Type.TIME: "use CAST(... AS TIMESTAMP)",
    Type.JSON: "name a member of the data",
    Type.NULL: "",
}


def _article(type_: Type) -> str:
    return f"a {type_}" if type_ is not Type.TEXT else "text"


# From the strongest: what two sides of different types are compared as.
_STRENGTH: Final = (Type.TIME, Type.NUMBER, Type.BOOLEAN, Type.TEXT, Type.JSON)


def compared_type(nodes: tuple[Node, ...]) -> Type:
    """Give the type in which these nodes are compared; `converted` says whether each can take it.

    Timestamps among the attributes compare as moments with text: their text has many spellings.
    """
    types = {type_of(node) for node in nodes} - {Type.NULL}
    timestamp = any(isinstance(node, Attribute) and node.name in TIMESTAMPS for node in nodes)
    if timestamp and types <= {Type.TEXT, Type.JSON} and len(nodes) > 1:
        return Type.TIME
    return next((type_ for type_ in _STRENGTH if type_ in types), Type.NULL)
