"""What a topic will refuse of what a route sends, as far as the contract tells: before anything runs."""

from __future__ import annotations

from typing import Final

from penstock.contract import Contract, ResolvedOperation
from penstock.contract.finding import Report
from penstock.pipeline import rules
from penstock.pipeline.compiled import CompiledRoute, Pipeline
from penstock.pipeline.plan.route import SimpleKey
from penstock.pipeline.spark.session import is_connect

__all__ = ["refuse_unserved", "warn_of_refusals"]

_KERBEROS: Final = "GSSAPI"
_BYTES: Final = "max.message.bytes"
_BOUNDS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_LEAST_MS: Final = 120_000
"""So long a batch may be under way; clocks of one installation differ by less."""


def refuse_unserved(pipeline: Pipeline, report: Report) -> None:
    """Report logins that no engine has, and a warning where the environment asks for Spark Connect."""
    for route in pipeline.routes:
        places = (route.receive, *route.send)
        fields = ("receive", *("send" for _ in route.send))
        for field_name, operation in zip(fields, places, strict=True):
            if operation.connection.mechanism == _KERBEROS:
                node = route.document.at(field_name)
                report.add(rules.NO_KERBEROS, node, route=route.name, server=operation.server)
    if pipeline.engine != "loop" and pipeline.routes and is_connect():
        report.add(rules.NO_CONNECT, pipeline.routes[0].document.node)


def warn_of_refusals(pipeline: Pipeline, report: Report) -> None:
    """Warn of targets that take less than a route may send: no key, a larger record, another time."""
    for route in pipeline.routes:
        for target in route.send:
            _warn_of_key(pipeline.contract, route, target, report)
            _warn_of_size(pipeline.contract, route, target, report)
            _warn_of_time(pipeline.contract, route, target, report)
        if _is_compacted(pipeline.contract, route.dead_letter_channel):
            own = route.document.delivery.dead_letter_sink is not None
            place = route.document.delivery.at("deadLetterSink") if own else route.document.at("receive")
            report.add(rules.COMPACTED_LETTERS, place, route=route.name, channel=route.dead_letter_channel)


def _warn_of_key(contract: Contract, route: CompiledRoute, target: ResolvedOperation, report: Report) -> None:
    if not _is_compacted(contract, target.channel):
        return
    key, receive = route.plan.key, route.receive
    # A compacted source has no record without a key, and a message may say which key it has.
    has_keys = _is_compacted(contract, receive.channel) or (
        bool(receive.messages) and all(message.key is not None for message in receive.messages)
    )
    if key is SimpleKey.NONE or (key is SimpleKey.KEEP and not has_keys):
        report.add(rules.NO_KEY, route.document.at("send"), route=route.name, topic=target.topic)


def _warn_of_size(
    contract: Contract, route: CompiledRoute, target: ResolvedOperation, report: Report
) -> None:
    found = _number(contract, target.channel, _BYTES)
    other = _number(contract, route.receive.channel, _BYTES)
    if found is not None and other is not None and found < other:
        report.add(
            rules.SMALLER_TARGET,
            route.document.at("send"),
            route=route.name,
            topic=target.topic,
            found=found,
            source=route.receive.topic,
            other=other,
        )


def _warn_of_time(
    contract: Contract, route: CompiledRoute, target: ResolvedOperation, report: Report
) -> None:
    if _settings(contract, target.channel).get("message.timestamp.type") == "LogAppendTime":
        return
    for name in _BOUNDS:
        found = _number(contract, target.channel, name)
        if found is not None and found < _LEAST_MS:
            report.add(
                rules.TIGHT_TIME,
                route.document.at("send"),
                route=route.name,
                topic=target.topic,
                setting=name,
                found=found,
                wanted=_LEAST_MS,
            )


def _is_compacted(contract: Contract, channel: str) -> bool:
    pulsar = contract.channels[channel].bindings.pulsar
    by_pulsar = pulsar is not None and bool(pulsar.compaction)
    return by_pulsar or "compact" in _settings(contract, channel).get("cleanup.policy", "").split(",")


def _number(contract: Contract, channel: str, name: str) -> int | None:
    found = _settings(contract, channel).get(name, "").strip()
    return int(found) if found.isdecimal() else None


def _settings(contract: Contract, channel: str) -> dict[str, str]:
    kafka = contract.channels[channel].bindings.kafka
    configuration = kafka.topic_configuration if kafka is not None else None
    return {} if configuration is None else dict(configuration.settings)
