"""DescribeCluster (60), versions 0 to 2 (KIP-700, KIP-919): the nodes; the first is the controller."""

from __future__ import annotations

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 60
_NO_OPERATIONS = -(1 << 31)


async def _handle(request: Request, services: Services) -> Body:
    nodes = services.cluster.nodes(request.listener)
    fields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "endpoint_type": 1,
        "cluster_id": services.cluster.cluster_id,
        "controller_id": nodes[0].id,
        "brokers": [{"broker_id": node.id, "host": node.host, "port": node.port} for node in nodes],
        "cluster_authorized_operations": _NO_OPERATIONS,
    }
    return (encode_answer(_KEY, request.version, fields),)


API = Handler(_KEY, 0, 2, _handle)
