"""In which profile of the CloudEvents binding for Pulsar (spec 002) the events of a channel are written.

`x-penstock-profile` in the channel's Pulsar binding says it; else the headers that the messages declare,
because each profile has its own names; else it is 0.1, the specification's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.contract.channels import Channel
from penstock.contract.pulsar import PROFILES
from penstock.contract.selection import HEADERS_01, HEADERS_10, header_schema

__all__ = ["profile_of"]

_NAMES: Final[Mapping[str, tuple[str, ...]]] = dict(zip(PROFILES, (HEADERS_01, HEADERS_10), strict=True))


def profile_of(channel: Channel) -> str:
    """Give `0.1` or `1.0`."""
    binding = channel.bindings.pulsar
    if binding is not None and binding.profile is not None:
        return binding.profile
    declared = [
        profile
        for profile, names in _NAMES.items()
        for message in channel.messages.values()
        if any(header_schema(message.headers, name) is not None for name in names)
    ]
    return declared[0] if len(set(declared)) == 1 else PROFILES[0]
