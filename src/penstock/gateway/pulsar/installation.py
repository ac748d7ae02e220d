"""The cluster id of an installation: chosen by its first gateway, and kept with the state of the groups.

It is a property of a topic that exists for nothing else. Pulsar creates a topic with its properties in one
step, so of gateways that start at the same time one chooses and the others read. No message is ever written
to the topic.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.brokers.pulsar import Admin, Creation
from penstock.errors import AccessDenied, ClusterError
from penstock.gateway.cluster_id import is_cluster_id, new_cluster_id

__all__ = ["find_cluster_id"]

_TOPIC: Final = "__cluster"
_PROPERTY: Final = "penstock.kafka.cluster-id"
_INACTIVE: Final = "inactiveTopicPolicies"
_STAYS: Final = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
"""The policy by which Pulsar does not remove a topic that nobody uses."""


async def find_cluster_id(admin: Admin, namespace: str) -> str:
    """Give the cluster id of the installation whose state is in a namespace; the first caller chooses it.

    Only that one needs the right to create topics.
    """
    topic = f"persistent://{namespace}/{_TOPIC}"
    with contextlib.suppress(AccessDenied):
        # Who may not create it may still read what is there.
        await admin.create_namespace(namespace)
    known = (await admin.properties(topic) or {}).get(_PROPERTY)
    if known is not None and is_cluster_id(known):
        await _let_stay(admin, topic)
        return known
    chosen = new_cluster_id()
    if await admin.create_partitioned_topic(topic, 1, {_PROPERTY: chosen}) is Creation.CREATED:
        await admin.set_policy(topic, _INACTIVE, _STAYS)
        return chosen
    found = (await admin.properties(topic) or {}).get(_PROPERTY)
    if found is None or not is_cluster_id(found):
        raise ClusterError(
            f"topic {topic} does not hold the cluster id",
            why=f"its property {_PROPERTY} is {found!r}",
            next="delete the topic; a gateway that starts makes it again, with another cluster id",
        )
    return found


async def _let_stay(admin: Admin, topic: str) -> None:
    """Set the policy if the gateway that made the topic has ended before it did; who may not leaves it."""
    with contextlib.suppress(AccessDenied):
        if await admin.policy(topic, _INACTIVE) is None:
            await admin.set_policy(topic, _INACTIVE, _STAYS)
