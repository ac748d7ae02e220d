"""Rare answers from plain values: dictionaries become kio's classes of the version that was asked.

A field that the version does not have is left out; one that is not given takes its default, or the zero of
its type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode, encode_body

__all__ = ["encode_answer", "entity"]


def encode_answer(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """Write the answer of an API in a version."""
    return encode_body(entity(_schema(key, version), fields))


@cache
def _schema(key: int, version: int) -> Any:
    from kio.index import load_response_schema

    return load_response_schema(key, version)


@cache
def _hints(schema: Any) -> Mapping[str, Any]:
    hints = get_type_hints(schema)
    return {each.name: hints[each.name] for each in dataclasses.fields(schema)}


def entity(schema: Any, values: Mapping[str, Any]) -> Any:
    """Make one of kio's classes from plain values."""
    given = {}
    for each in dataclasses.fields(schema):
        hint = _hints(schema)[each.name]
        if each.name in values:
            given[each.name] = _value(hint, values[each.name])
            if each.name == "error_code":
                tell(values[each.name], values.get("error_message"))
        elif each.default is dataclasses.MISSING:
            given[each.name] = _zero(hint)
    return schema(**given)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    element = _element(hint)
    if element is not None:
        return tuple(_value(element, each) for each in value)
    inner = _without_none(hint)
    if dataclasses.is_dataclass(inner):
        return entity(inner, value)
    # Times are given as whole milliseconds, the way the protocol counts them.
    if isinstance(value, int) and _is_timedelta(inner):
        return timedelta(milliseconds=value)
    return value


def _zero(hint: Any) -> Any:
    if NoneType in get_args(hint):
        return None
    if _element(hint) is not None:
        return ()
    inner = _without_none(hint)
    if dataclasses.is_dataclass(inner):
        return entity(inner, {})
    return next((zero for kind, zero in _ZEROS if _is_kind(inner, kind)), 0)


def _element(hint: Any) -> Any:
    for option in (hint, *get_args(hint)):
        if get_origin(option) is tuple:
            return get_args(option)[0]
    return None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(option for option in get_args(hint) if option is not NoneType)
    return hint


def _is_kind(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind)


def _is_timedelta(hint: Any) -> bool:
    return _is_kind(hint, timedelta)


_ZEROS: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (timedelta, timedelta(0)),
    (UUID, UUID(int=0)),
    (str, ""),
    (bytes, b""),
    (type(ErrorCode.NONE), ErrorCode.NONE),
)
