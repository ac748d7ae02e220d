"""The addresses that a channel stands for: one for each combination of the values of its parameters.

All of them or an error: a list that is cut would make a plan delete topics that are declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from penstock.contract.channels import Channel
from penstock.contract.topics import BRACES, fill, is_named_by
from penstock.errors import ContractError

__all__ = ["MAX_ADDRESSES", "MAX_TOPICS", "addresses_of", "count_addresses", "is_open", "may_name"]

MAX_ADDRESSES: Final = 10_000
"""Addresses of one channel."""
MAX_TOPICS: Final = 50_000
"""Topics of one contract, over all channels and servers."""
_COUNTED: Final = 1_000_000_000
"""More addresses than this are not told apart."""


def addresses_of(template: str | None, channel: Channel) -> tuple[str, ...] | None:
    """Give every address that a channel can have; None if they cannot be known.

    Raises ContractError for more than MAX_ADDRESSES.
    """
    values = _values(template, channel)
    if template is None or values is None:
        return None
    if _count(values) > MAX_ADDRESSES:
        raise ContractError(
            f"the address {template} stands for more than {MAX_ADDRESSES} topics",
            where=str(channel.node.position()),
            next="split the channel, or shorten the enum of a parameter",
        )
    return tuple(
        fill(template, dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())
    )


def count_addresses(template: str | None, channel: Channel) -> int:
    """Count the addresses of a channel without making them; 0 if they cannot be known."""
    values = _values(template, channel)
    return 0 if values is None else _count(values)


def is_open(template: str | None, channel: Channel) -> bool:
    """Say whether a parameter of the address takes values that the document does not list.

    A default without an enum is one value of many.
    """
    return any(not channel.parameters[name].enum for name in _used(template, channel))


def may_name(template: str | None, channel: Channel, topic: str) -> bool:
    """Say whether an address that is open may stand for a topic."""
    return template is not None and is_open(template, channel) and is_named_by(template, topic)


def _used(template: str | None, channel: Channel) -> Iterator[str]:
    names = frozenset(BRACES.findall(template or ""))
    return (name for name in channel.parameters if name in names)


def _values(template: str | None, channel: Channel) -> dict[str, tuple[str, ...]] | None:
    """Give the values of each parameter, each once; None if one has none, or there is no address."""
    if template is None:
        return None
    found: dict[str, tuple[str, ...]] = {}
    for name in _used(template, channel):
        parameter = channel.parameters[name]
        values = parameter.enum or ((parameter.default,) if parameter.default is not None else ())
        if not values:
            return None
        found[name] = tuple(dict.fromkeys(values))
    return found


def _count(values: dict[str, tuple[str, ...]]) -> int:
    """Multiply, as far as anybody needs to know: a number of thousands of digits cannot even be printed."""
    number = 1
    for each in values.values():
        number *= len(each)
        if number > _COUNTED:
            return _COUNTED
    return number
