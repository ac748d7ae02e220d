"""Which handler serves which API: the one table from which ApiVersions and the documentation are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
)
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.security.session import Session
from penstock.wire.kafka import APIS, ErrorCode, RequestHeader, decode_fetch, decode_produce, decode_request
from penstock.wire.kafka.apis import API_VERSIONS, FETCH, PRODUCE, PRODUCE_ADVERTISED_FROM

__all__ = ["HANDLERS", "Unserved", "advertised", "check_names", "is_served", "read_request", "serve"]

_MODULES = (
    *(api_versions, create_partitions, create_topics, delete_records, delete_topics, describe_cluster),
    *(describe_configs, fetch, find_coordinator, incremental_alter_configs, init_producer_id, list_offsets),
    *(metadata, offset_for_leader_epoch, produce, sasl_authenticate, sasl_handshake),
    *(join_group, sync_group, heartbeat, leave_group, offset_commit, offset_fetch, offset_delete),
    *(describe_groups, list_groups, delete_groups, alter_configs, describe_acls, describe_topic_partitions),
)
HANDLERS: Final[Mapping[int, Handler]] = {module.API.key: module.API for module in _MODULES}


_DECODERS: Final[Mapping[int, Callable[[RequestHeader, memoryview], Any]]] = {
    PRODUCE: decode_produce,
    FETCH: decode_fetch,
}
"""The requests that are read by hand."""


_NAMES: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("topics",),
    1: ("topics",),
    2: ("topics",),
    3: ("topics",),
    8: ("topics",),
    9: ("topics", "groups"),
    10: ("coordinator_keys",),
    15: ("groups",),
    19: ("topics",),
    20: ("topics", "topic_names"),
    21: ("topics",),
    23: ("topics",),
    32: ("resources",),
    33: ("resources",),
    37: ("topics",),
    42: ("groups_names",),
    44: ("resources",),
    47: ("topics",),
    75: ("topics",),
}
"""What a request names as much of as it likes, each of which may cost a question to Pulsar."""


class Unserved(Exception):
    """The API or version is not served: Kafka closes the connection, for there is no form to answer in."""


def advertised() -> tuple[tuple[int, int, int], ...]:
    """Give key, lowest and highest version of every API, as ApiVersions tells it."""
    rows = [(handler.key, _lowest(handler), handler.highest) for handler in HANDLERS.values()]
    return tuple(sorted(rows))


def _lowest(handler: Handler) -> int:
    return PRODUCE_ADVERTISED_FROM if handler.key == PRODUCE else handler.lowest


async def serve(
    header: RequestHeader,
    frame: memoryview,
    listener: str,
    services: Services,
    client_host: str = "",
    session: Session | None = None,
) -> Body:
    """Decode and serve one request; Unserved if nobody serves it."""
    handler = HANDLERS.get(header.api_key)
    if handler is None or handler.handle is None or not is_served(header):
        if header.api_key == API_VERSIONS:
            return api_versions.unsupported(services)
        name = APIS[header.api_key].name if header.api_key in APIS else str(header.api_key)
        raise Unserved(f"{name} v{header.api_version}")
    request = read_request(header, frame, listener, client_host)
    check_names(header.api_key, frame, request.body, services.settings.max_names_per_request)
    if session is not None:
        request = request._replace(session=session)
    return await handler.handle(request, services)


def check_names(key: int, frame: memoryview, body: Any, limit: int) -> None:
    """Refuse a request that names more than `limit` things, or more partitions of them."""
    if len(frame) <= limit:
        # Each of them takes at least a byte.
        return
    for field in _NAMES.get(key, ()):
        rows = getattr(body, field, None) or ()
        _check_count(key, field, len(rows), limit)
        _check_count(key, "partitions", sum(map(_count_partitions, rows)), limit)


def _check_count(key: int, what: str, asked: int, limit: int) -> None:
    if asked > limit:
        raise ApiError(
            f"{APIS[key].name} names {asked} {what}, {limit} are taken",
            error_code=ErrorCode.INVALID_REQUEST,
        )


def _count_partitions(row: Any) -> int:
    """Count the partitions of a topic, or of the topics of a group, each of them at least once."""
    topics = getattr(row, "topics", None)
    if topics:
        return sum(max(1, _count_partitions(each)) for each in topics)
    return len(getattr(row, "partitions", None) or getattr(row, "partition_indexes", None) or ())


def is_served(header: RequestHeader) -> bool:
    """Say whether an API is served in this version."""
    handler = HANDLERS.get(header.api_key)
    return handler is not None and handler.lowest <= header.api_version <= handler.highest


def read_request(header: RequestHeader, frame: memoryview, listener: str, client_host: str) -> Request:
    """Decode a request."""
    decode = _DECODERS.get(header.api_key, decode_request)
    return Request(header.api_version, decode(header, frame), listener, header.client_id, client_host)
