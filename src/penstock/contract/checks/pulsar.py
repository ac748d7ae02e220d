"""Checks of the rules in `rules.pulsar`: names, and namespaces that two channels describe."""

from __future__ import annotations

import re
from typing import Final

from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.finding import Report
from penstock.contract.protocols import family_of
from penstock.contract.rules import pulsar as rules

__all__ = ["check_pulsar"]

# Pulsar, NamedEntity: the characters of tenants and namespaces.
_NAME: Final = re.compile(r"[-=:.\w]+\Z", re.ASCII)
_PARTITION: Final = re.compile(r".*-partition-[0-9]+\Z", re.DOTALL)
# Fields that are policies of the whole namespace; the others belong to a topic.
STORED: Final = ("compaction", "deduplication", "retention", "ttl")
"""Fields that concern what is stored."""
POLICIES: Final = (("retention", "retention"), ("ttl", "ttl"), ("geo-replication", "geo_replication"))


def check_pulsar(contract: Contract, report: Report) -> None:
    """Report names that Pulsar refuses, and policies on which two channels of a namespace disagree."""
    for server in contract.servers.values():
        binding = server.bindings.pulsar
        if binding is not None and not _NAME.match(binding.tenant):
            report.add(rules.BAD_PULSAR_NAME, binding.at("tenant"), found=binding.tenant, kind="tenant")
    seen: dict[tuple[str, str, str], tuple[str, object]] = {}
    for name, channel in contract.channels.items():
        servers = [n for n, s in contract.servers_of(channel).items() if family_of(s) == "pulsar"]
        _check_names(channel, report, bool(servers))
        _check_stored(channel, report)
        for server_name in servers:
            _check_policies(name, channel, server_name, seen, report)


def _check_names(channel: Channel, report: Report, on_pulsar: bool) -> None:
    binding = channel.bindings.pulsar
    if binding is not None and binding.namespace is not None and not _NAME.match(binding.namespace):
        report.add(rules.BAD_PULSAR_NAME, binding.at("namespace"), found=binding.namespace, kind="namespace")
    address = channel.address
    if on_pulsar and address is not None and ("/" in address or _PARTITION.match(address) or not address):
        report.add(rules.BAD_PULSAR_NAME, channel.at("address"), found=address, kind="topic")


def _check_stored(channel: Channel, report: Report) -> None:
    binding = channel.bindings.pulsar
    if binding is None or binding.persistence != "non-persistent":
        return
    for field in STORED:
        if getattr(binding, field) is not None:
            report.add(rules.NOT_STORED, binding.at(field), field=field)


def _check_policies(
    name: str,
    channel: Channel,
    server: str,
    seen: dict[tuple[str, str, str], tuple[str, object]],
    report: Report,
) -> None:
    binding = channel.bindings.pulsar
    if binding is None or binding.namespace is None:
        return
    for field, attribute in POLICIES:
        value = getattr(binding, attribute)
        if value is None:
            continue
        other, known = seen.setdefault((server, binding.namespace, field), (name, value))
        if known != value:
            report.add(
                rules.NAMESPACE_DISAGREES,
                binding.at(field),
                field=field,
                namespace=binding.namespace,
                other=other,
            )
