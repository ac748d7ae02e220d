"""A project whose channel `in` is on Pulsar and all others on Kafka, with events of every kind in it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from penstock.embedded.pulsar import Pulsar
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile, PulsarBinding

__all__ = ["PulsarSide", "event", "ids_of", "on_pulsar", "wait_until"]

_NAMESPACE = "public/default"


def event(number: int, **more: str) -> CloudEvent:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    return CloudEvent({**attributes, **more}, b'{"n": %d}' % number)


def ids_of(records: Iterable[Any]) -> list[str]:
    """The ids of events on Kafka, in their order."""
    return [KafkaBinding().decode(each).id for each in records]


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        threading.Event().wait(0.1)


@dataclass
class PulsarSide:
    """The topic that is read, and a plain client that writes it."""

    broker: Pulsar
    topic: str
    partitions: int = 0
    _client: Any = field(default=None, repr=False)

    def rest(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Ask the admin API about the topic: `path` follows its name."""
        base = f"{self.broker.admin_url}/admin/v2/persistent/{self.topic.removeprefix('persistent://')}"
        raw = None if body is None else json.dumps(body).encode()
        request = Request(base + path, raw, method=method, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create(self) -> PulsarSide:
        path = "/partitions" if self.partitions else ""
        self.rest(path, "PUT", self.partitions or None)
        return self

    def delete(self) -> None:
        self.rest(f"{'/partitions' if self.partitions else ''}?force=true", "DELETE")

    @property
    def client(self) -> Any:
        import pulsar

        if self._client is None:
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            self._client = pulsar.Client(self.broker.service_url, logger=quiet)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(
        self,
        numbers: Iterable[int],
        *,
        profile: Profile = Profile.V1_0,
        poison: int = 0,
        keys: int = 8,
        **said: Any,
    ) -> None:
        """Write events in batches, a key for each of `keys`; every so many a message that is no event."""
        import pulsar

        settings = {"batching_enabled": True, "batching_max_publish_delay_ms": 5, "block_if_queue_full": True}
        routing = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        producer = self.client.create_producer(
            self.topic, **{**settings, "message_routing_mode": routing, **said}
        )
        failed: list[Any] = []

        def done(result: Any, _: Any) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        for number in numbers:
            message = PulsarBinding(profile=profile).encode(event(number))
            key = f"k{number % keys}"
            producer.send_async(message.payload, done, properties=dict(message.properties), partition_key=key)
            if poison and number % poison == 0:
                producer.send_async(b"poison-%d" % number, done, partition_key=key)
        producer.flush()
        producer.close()
        assert not failed

    def backlog(self, subscription: str) -> int:
        """The entries that a subscription has not acknowledged, over all partitions."""
        path = "/partitioned-stats" if self.partitions else "/stats"
        found = self.rest(path)["subscriptions"]
        return int(found[subscription]["msgBacklog"]) if subscription in found else -1


def on_pulsar(
    project: Any,
    broker: Pulsar,
    *,
    partitions: int = 0,
    route: Mapping[str, Any] | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    **more: Any,
) -> PulsarSide:
    """Create the topics of a project, put its channel `in` onto Pulsar, and write its files."""
    security = more.pop("context", {})
    for channel in project.channels:
        if channel != "in":
            own = (settings or {}).get(channel, {})
            project.admin(channel).create_topic(
                project.topic(channel), partitions=2, replicas=1, settings=own
            )
    project.write(route, **more)
    contract = _read(project.folder / "asyncapi.yaml")
    contract["servers"]["pulsar"] = {"host": "unused:6650", "protocol": "pulsar"}
    binding = {"namespace": "default", "persistence": "persistent", "bindingVersion": "0.1.0"}
    contract["channels"]["in"] |= {
        "servers": [{"$ref": "#/servers/pulsar"}],
        "bindings": {"pulsar": binding},
    }
    context = _read(project.folder / "penstock.yaml")
    servers = next(iter(context["contexts"].values()))["servers"]
    known = {"kind": "pulsar", "address": broker.service_url, "admin": broker.admin_url}
    servers["pulsar"] = {**known, **security}
    for name, value in (("asyncapi", contract), ("penstock", context)):
        (project.folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")
    return PulsarSide(broker, f"persistent://{_NAMESPACE}/{project.topic('in')}", partitions)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
