"""The limits of `penstock gateway` by their names on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.errors import ConfigError
from penstock.gateway.process import Options

__all__ = ["LIMITS", "limited"]

LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "connections": ("limits", "connections"),
    "connections-per-address": ("limits", "connections_per_address"),
    "bytes": ("limits", "bytes_in_all"),
    "bytes-per-principal": ("limits", "bytes_per_principal"),
    "bytes-per-connection": ("limits", "bytes_per_connection"),
    "unauthenticated-bytes": ("limits", "unauthenticated_bytes_in_all"),
    "unauthenticated-bytes-per-address": ("limits", "unauthenticated_bytes_per_address"),
    "answer-bytes": ("limits", "answer_bytes_in_all"),
    "answer-bytes-per-principal": ("limits", "answer_bytes_per_principal"),
    "principals": ("", "max_principals"),
    "groups": ("group_limits", "max_groups"),
    "groups-bytes": ("group_limits", "max_bytes"),
    "groups-bytes-per-tenant": ("group_limits", "max_tenant_bytes"),
    "members": ("group_limits", "max_members"),
    "member-bytes": ("group_limits", "max_member_bytes"),
    "group-bytes": ("group_limits", "max_group_bytes"),
    "offset-metadata-bytes": ("group_limits", "max_offset_metadata"),
    "names-per-request": ("", "max_names_per_request"),
}
"""Each with the part of the options that holds it, and its name there."""


def limited(options: Options, words: Sequence[str]) -> Options:
    """Change limits, each written NAME=NUMBER.

    >>> limited(Options(pulsar="pulsar://x"), ["connections=3"]).limits.connections
    3
    """
    for word in words:
        name, _, number = word.partition("=")
        if name not in LIMITS:
            raise ConfigError(
                f"'{word}' is no limit",
                where="--limit",
                next=f"write NAME=NUMBER; the names are {', '.join(LIMITS)}",
            )
        if not number.isdecimal() or not 0 < int(number) < 1 << 31:
            raise ConfigError(
                f"'{number}' is no number for the limit {name}",
                where="--limit",
                next=f"write {name}=NUMBER, a whole number from 1 to {(1 << 31) - 1}",
            )
        part, attribute = LIMITS[name]
        change = {attribute: int(number)}
        options = replace(
            options, **(change if not part else {part: replace(getattr(options, part), **change)})
        )
    return options
