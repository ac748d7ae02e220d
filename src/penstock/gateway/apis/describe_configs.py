"""DescribeConfigs (32), versions 1 to 4: the settings of topics, and those of this node, which are fixed.

3 adds the type and a description. A value that nobody set is told as a default: tools that copy settings
from one cluster to another copy what was set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import TopicConfig
from penstock.gateway.topic_settings import TOPIC_SETTINGS, Kind
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 32
_TOPIC, _BROKER = 2, 4
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
"""Where a value comes from."""
_AT_ONCE: Final = 8


async def _handle(request: Request, services: Services) -> Body:
    rows = (_describe(resource, request, services) for resource in request.body.resources)
    results = await gather_limited(rows, _AT_ONCE)
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "results": results}),)


async def _describe(asked: Any, request: Request, services: Services) -> dict[str, Any]:
    result = {
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "configs": [],
    }
    try:
        configs = await _configs(asked, request, services)
    except ApiError as exc:
        return result | {"error_code": ErrorCode(exc.error_code), "error_message": exc.what}
    names = asked.configuration_keys
    return result | {"configs": [row for row in configs if names is None or row["name"] in names]}


async def _configs(asked: Any, request: Request, services: Services) -> Iterable[dict[str, Any]]:
    if asked.resource_type == _TOPIC:
        found = await services.topics.configs(asked.resource_name)
        return [_topic_config(name, config, request.body) for name, config in found.items()]
    if asked.resource_type != _BROKER:
        raise ApiError("only topics and brokers have settings here", error_code=ErrorCode.INVALID_REQUEST)
    if asked.resource_name == "":
        # The dynamic defaults of all brokers: there are none.
        return []
    if asked.resource_name != str(services.cluster.node_id):
        raise ApiError(
            f"this is broker {services.cluster.node_id}, not {asked.resource_name}",
            error_code=ErrorCode.INVALID_REQUEST,
        )
    return _broker_configs(request, services)


def _topic_config(name: str, config: TopicConfig, body: Any) -> dict[str, Any]:
    setting = TOPIC_SETTINGS[name]
    row = {
        "name": name,
        "value": config.value,
        "read_only": False,
        "config_source": _DYNAMIC_TOPIC if config.is_set else _DEFAULT,
        "is_sensitive": False,
        "synonyms": _synonyms(name, config) if body.include_synonyms else (),
        "config_type": setting.kind,
    }
    if getattr(body, "include_documentation", False):
        row["documentation"] = setting.about
    return row


def _synonyms(name: str, config: TopicConfig) -> list[dict[str, Any]]:
    """Give the values by which this one came about, the one that holds first."""
    setting, rows = TOPIC_SETTINGS[name], []
    if config.is_set:
        rows.append({"name": name, "value": config.value, "source": _DYNAMIC_TOPIC})
    if setting.broker:
        default = setting.default if config.is_set else config.value
        rows.append({"name": setting.broker, "value": default, "source": _DEFAULT})
    return rows


def _broker_configs(request: Request, services: Services) -> list[dict[str, Any]]:
    settings, cluster = services.settings, services.cluster
    own = next((node for node in cluster.nodes(request.listener) if node.id == cluster.node_id), None)
    address = "" if own is None else f"{own.host}:{own.port}"
    rows: tuple[tuple[str, Kind, object], ...] = (
        ("advertised.listeners", Kind.LIST, address),
        ("auto.create.topics.enable", Kind.BOOLEAN, settings.auto_create_topics),
        ("broker.id", Kind.INT, cluster.node_id),
        ("compression.type", Kind.STRING, "producer"),
        ("default.replication.factor", Kind.INT, 1),
        ("delete.topic.enable", Kind.BOOLEAN, True),
        ("fetch.max.bytes", Kind.INT, settings.max_fetch_bytes),
        ("log.cleanup.policy", Kind.LIST, TOPIC_SETTINGS["cleanup.policy"].default),
        ("log.message.timestamp.type", Kind.STRING, "CreateTime"),
        ("message.max.bytes", Kind.INT, settings.max_batch_bytes),
        ("min.insync.replicas", Kind.INT, 1),
        ("node.id", Kind.INT, cluster.node_id),
        ("num.partitions", Kind.INT, settings.default_partitions),
        ("socket.request.max.bytes", Kind.INT, settings.max_request_bytes),
        ("unclean.leader.election.enable", Kind.BOOLEAN, False),
    )
    return [_broker_config(name, kind, value) for name, kind, value in rows]


def _broker_config(name: str, kind: Kind, value: object) -> dict[str, Any]:
    return {
        "name": name,
        "value": str(value).lower() if kind is Kind.BOOLEAN else str(value),
        "read_only": True,
        "config_source": _STATIC_BROKER,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": kind,
    }


API = Handler(_KEY, 1, 4, _handle)
