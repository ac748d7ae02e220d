"""Checks of the rules in `rules.channels`, and of the dead-letter extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.contract.addresses import MAX_ADDRESSES, MAX_TOPICS, count_addresses
from penstock.contract.channels import Channel
from penstock.contract.checks.servers import BRACES, is_written
from penstock.contract.document import Contract
from penstock.contract.finding import Report
from penstock.contract.kafka import KafkaChannel
from penstock.contract.node import Node
from penstock.contract.protocols import family_of
from penstock.contract.rules import channels as rules
from penstock.contract.rules import extensions, reading
from penstock.contract.rules import kafka as kafka_rules
from penstock.contract.topics import is_kafka_topic, kafka_topic

__all__ = ["check_channels"]


def check_channels(contract: Contract, report: Report) -> None:
    """Report addresses, parameters, topics and dead letters that cannot be."""
    for channel in (*contract.channels.values(), *contract.components.channels.values()):
        _check_address(channel, report)
    for name, channel in contract.channels.items():
        families = {family_of(server) for server in contract.servers_of(channel).values()}
        _check_name(name, channel, families, report)
        _check_bindings(name, channel, families, report)
        _check_dead_letter(contract, name, channel, report)
    _check_one_truth(contract, report)
    _check_number(contract, report)


def _check_number(contract: Contract, report: Report) -> None:
    """Report channels that stand for more topics than are read; nothing is cut."""
    total = 0
    for name, channel in contract.channels.items():
        number = max(
            count_addresses(template, channel) for template in (kafka_topic(channel), channel.address)
        )
        if number > MAX_ADDRESSES:
            problem = f"channel {name} stands for {number} topics, at most {MAX_ADDRESSES} are read"
            report.add(reading.TOO_LARGE, channel.node, problem=problem, fix=_FEWER_TOPICS)
        else:
            total += number * max(1, len(contract.servers_of(channel)))
    if total > MAX_TOPICS:
        problem = f"its channels stand for {total} topics, at most {MAX_TOPICS} are read"
        report.add(reading.TOO_LARGE, contract.at("channels"), problem=problem, fix=_FEWER_TOPICS)


_FEWER_TOPICS: Final = "shorten the enum of a parameter, or split the document"


def _check_address(channel: Channel, report: Report) -> None:
    address = channel.address or ""
    names = BRACES.findall(address)
    for name in names:
        if not is_written(channel, "parameters", name):
            report.add(rules.MISSING_PARAMETER, channel.at("address"), name=name)
    for name, parameter in channel.parameters.items():
        if name not in names:
            report.add(rules.UNUSED_PARAMETER, parameter.node, name=name)
    if "?" in address or "#" in address:
        report.add(rules.QUERY_IN_ADDRESS, channel.at("address"), found=address)


def _check_name(name: str, channel: Channel, families: set[str], report: Report) -> None:
    kafka = channel.bindings.kafka
    own = kafka.topic if kafka is not None else None
    topic = channel.address if own is None else own
    if topic is None:
        report.add(rules.NO_ADDRESS, channel.node, channel=name)
    elif own is not None or "kafka" in families:
        where = kafka.at("topic") if kafka is not None and own is not None else channel.at("address")
        # A query is reported already, and an expression in braces stands for a name that is not known yet.
        if not is_kafka_topic(BRACES.sub("x", topic)) and "?" not in topic and "#" not in topic:
            report.add(rules.BAD_TOPIC, where, found=topic)


def _check_bindings(name: str, channel: Channel, families: set[str], report: Report) -> None:
    for protocol, binding in (("kafka", channel.bindings.kafka), ("pulsar", channel.bindings.pulsar)):
        if binding is not None and families and protocol not in families:
            report.add(
                kafka_rules.BINDING_OFF_PROTOCOL,
                binding.node,
                protocol=protocol,
                where=f"every server of channel {name}",
                found=", ".join(sorted(families)),
            )


def _check_dead_letter(contract: Contract, name: str, channel: Channel, report: Report) -> None:
    target = contract.channels.get(channel.dead_letter or "")
    if target is None:
        return
    where = channel.at("x-penstock-dead-letter")
    if target.dead_letter is not None:
        report.add(extensions.DEAD_LETTER_LOOP, where, channel=name)
    if not contract.servers_of(channel).keys() & contract.servers_of(target).keys():
        report.add(extensions.DEAD_LETTER_ELSEWHERE, where, channel=name, other=channel.dead_letter)


def _check_one_truth(contract: Contract, report: Report) -> None:
    """Compare every channel with the first one that stands for the same topic on the same server."""
    first: dict[tuple[str, str], str] = {}
    for name, channel in contract.channels.items():
        topic = kafka_topic(channel)
        for server, described in contract.servers_of(channel).items():
            if topic is None or family_of(described) != "kafka":
                continue
            other = first.setdefault((server, topic), name)
            if other != name:
                _compare(name, channel, other, contract.channels[other], topic, report)


def _compare(name: str, channel: Channel, other: str, earlier: Channel, topic: str, report: Report) -> None:
    known = {field: value for field, value, _ in _facts(earlier.bindings.kafka)}
    for field, value, node in _facts(channel.bindings.kafka):
        if known.get(field, value) != value:
            report.add(
                rules.TOPIC_DISAGREES,
                node,
                channel=name,
                field=field,
                found=value,
                topic=topic,
                other=other,
                wanted=known[field],
            )


def _facts(binding: KafkaChannel | None) -> Iterator[tuple[str, str, Node]]:
    """What a binding says about its topic: field, value and place."""
    if binding is None:
        return
    for field in ("partitions", "replicas"):
        value = getattr(binding, field)
        if value is not None:
            yield field, str(value), binding.at(field)
    settings = binding.topic_configuration
    if settings is not None:
        for key, text in settings.settings.items():
            shown = ",".join(sorted(text.split(","))) if key == "cleanup.policy" else text
            yield key, shown, settings.at(key)
