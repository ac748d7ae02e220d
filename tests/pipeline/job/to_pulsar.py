"""A project whose routes read Kafka and send to Pulsar, and plain clients on the far end."""

from __future__ import annotations

import json
import ssl
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from job_project import Project

from penstock.embedded.pulsar import Pulsar
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import PulsarBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.record import KafkaRecord, PulsarMessage

__all__ = ["ToPulsar", "ask", "event_record", "events_with_poison"]

_OLD_EVENT = {"event": {"headers": {"type": "object", "properties": {"CE-EventID": {"type": "string"}}}}}


def ask(server: Pulsar, method: str, path: str, body: Any = None) -> Any:
    """Call the admin API; what is there already is no error."""
    raw = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if server.secured:
        headers["Authorization"] = f"Bearer {server.token('admin')}"
    request = Request(f"{server.admin_url}/admin/v2/{path}", data=raw, method=method, headers=headers)
    tls = ssl.create_default_context(cafile=str(server.ca_file)) if server.secured else None
    try:
        with urlopen(request, timeout=60, context=tls) as answer:
            text = answer.read()
            return json.loads(text) if text else None
    except HTTPError as exc:
        if exc.code != 409:
            raise
        return None


@dataclass(kw_only=True)
class ToPulsar(Project):
    """Channels that begin with p are on Pulsar: pout, pold (profile 0.1) and pdead."""

    pulsar: Pulsar
    context_of_pulsar: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = "public/default"

    @property
    def channels(self) -> tuple[str, ...]:
        return ("in", "out", "dead", "pout", "pold", "pdead")

    def is_on_pulsar(self, channel: str) -> bool:
        return channel.startswith("p")

    def topic(self, channel: str) -> str:
        local = super().topic(channel)
        return f"persistent://{self.namespace}/{local}" if self.is_on_pulsar(channel) else local

    def path(self, channel: str) -> str:
        return "persistent/" + self.topic(channel).removeprefix("persistent://")

    def create(self, partitions: int = 1, settings: Any = None, *, targets: int = 2) -> ToPulsar:
        """Create the topics; those on Pulsar have so many `targets`, 0: no partitions."""
        for channel in self.channels:
            if not self.is_on_pulsar(channel):
                own = (settings or {}).get(channel, {})
                admin = self.admin(channel)
                admin.create_topic(self.topic(channel), partitions=partitions, replicas=1, settings=own)
            elif targets:
                ask(self.pulsar, "PUT", f"{self.path(channel)}/partitions", targets)
            else:
                ask(self.pulsar, "PUT", self.path(channel))
        return self

    def write(self, route: Mapping[str, Any] | None = None, *, dead: str = "dead", **pipeline: Any) -> Any:
        """Write contract, context and pipeline; without more the one route sends to pout."""
        super().write({"send": "send-pout", **(route or {})}, **pipeline)
        contract = json.loads((self.folder / "asyncapi.yaml").read_text(encoding="utf-8"))
        contract["servers"]["pulsar"] = {"host": "unused:6650", "protocol": "pulsar"}
        for name in filter(self.is_on_pulsar, self.channels):
            channel = contract["channels"][name]
            channel |= {
                "address": super().topic(name),
                "servers": [{"$ref": "#/servers/pulsar"}],
                "bindings": {
                    "pulsar": {
                        "namespace": self.namespace.partition("/")[2],
                        "persistence": "persistent",
                        "bindingVersion": "0.1.0",
                    }
                },
            }
            if name == "pold":
                channel["messages"] = _OLD_EVENT
            contract["operations"][f"send-{name}"] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
            }
        contract["channels"]["in"]["x-penstock-dead-letter"] = {"$ref": f"#/channels/{dead}"}
        config = json.loads((self.folder / "penstock.yaml").read_text(encoding="utf-8"))
        config["contexts"]["test"]["servers"]["pulsar"] = {
            "kind": "pulsar",
            "address": self.pulsar.service_url,
            "admin": self.pulsar.admin_url,
            **self.context_of_pulsar,
        }
        for name, value in (("asyncapi", contract), ("penstock", config)):
            (self.folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")
        return self

    @contextmanager
    def client(self) -> Iterator[Any]:
        import pulsar as plain

        options: dict[str, Any] = {"logger": plain.ConsoleLogger(plain.LoggerLevel.Error)}
        if self.pulsar.secured:
            options |= {
                "authentication": plain.AuthenticationToken(self.pulsar.token("admin")),
                "tls_trust_certs_file_path": str(self.pulsar.ca_file),
            }
        client = plain.Client(self.pulsar.service_url, **options)
        try:
            yield client
        finally:
            client.close()

    def messages(self, channel: str) -> dict[int, list[Any]]:
        """Read what is in a topic by Pulsar's own client, by partition and in its order."""
        import pulsar as plain

        found: dict[int, list[Any]] = {}
        with self.client() as client:
            for part, topic in enumerate(client.get_topic_partitions(self.topic(channel))):
                reader = client.create_reader(topic, plain.MessageId.earliest)
                found[part] = []
                while reader.has_message_available():
                    found[part].append(reader.read_next(60_000))
                reader.close()
        return found

    def events(self, channel: str) -> list[tuple[int, str | None, CloudEvent]]:
        """Partition, key and event of every message."""
        return [
            (part, message.partition_key() or None, decoded(message))
            for part, messages in self.messages(channel).items()
            for message in messages
        ]

    def assert_every_event_is_there_once(
        self, events: int, *, dead: str = "dead", out: str = "pout", is_divided_anew: bool = False
    ) -> None:
        """With `is_divided_anew`, a key may have moved to another partition, and has an order in each."""
        found = self.events(out)
        assert Counter(event.id for _, _, event in found) == Counter(f"e-{n}" for n in range(events))
        by_key: dict[tuple[str | None, int], list[int]] = defaultdict(list)
        parts: dict[str | None, set[int]] = defaultdict(set)
        for part, key, event in found:
            by_key[key, part].append(int(event.id[2:]))
            parts[key].add(part)
        for (key, _), numbers in by_key.items():
            if key is not None:
                assert numbers == sorted(numbers), f"key {key} lost its order"
                assert len(parts[key]) == 1 or is_divided_anew
        letters = [read_dead_letter(each) for each in self.letters(dead)]
        wanted = Counter(b"poison-%d" % number for number in range(0, events, 100))
        assert Counter(letter.record.value for letter in letters) == wanted

    def letters(self, channel: str) -> list[CloudEvent]:
        if self.is_on_pulsar(channel):
            return [event for _, _, event in self.events(channel)]
        return [KafkaBinding().decode(each) for each in self.read(channel)]


def decoded(message: Any) -> CloudEvent:
    properties = tuple(message.properties().items())
    return PulsarBinding().decode(PulsarMessage(payload=message.data(), properties=properties))


def event_record(number: int, key: bytes | None = None) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    return KafkaBinding().encode(CloudEvent(attributes, b'{"n": %d}' % number), key=key)


def events_with_poison(events: int, first: int = 0, keys: int = 50) -> Iterable[KafkaRecord]:
    """Two of three events have one of so many keys; every hundredth is followed by what is no event."""
    for number in range(first, first + events):
        yield event_record(number, None if number % 3 == 0 else b"k%d" % (number % keys))
        if number % 100 == 0:
            yield KafkaRecord(value=b"poison-%d" % number)
