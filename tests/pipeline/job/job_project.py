"""A small project for jobs on real servers: a contract, topics of its own, events in and out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_records import scan
from penstock.config import load
from penstock.embedded.kafka import Kafka
from penstock.pipeline.compile import Pipeline, load_pipeline
from penstock.pipeline.job import JobOptions, Totals, job_of
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Project", "Running"]

_MESSAGE = {"event": {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}}


def _channel(address: str, server: str) -> dict[str, Any]:
    return {"address": address, "servers": [{"$ref": f"#/servers/{server}"}], "messages": _MESSAGE}


def _operation(action: str, channel: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, **more}


@dataclass
class Project:
    """A folder with a contract (channels in, out, dead and those of `places`) and one route."""

    folder: Path
    servers: Mapping[str, Kafka]
    places: Mapping[str, str] = field(default_factory=dict)
    """The servers of channels that are not on kafka."""
    group: Mapping[str, Any] | None = None
    security: Mapping[str, Any] = field(default_factory=dict)
    """What the context says of secured servers, beside or instead of the administrator's login."""
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    processes: list[Running] = field(default_factory=list)

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("in", "out", "dead", *self.places)))

    def server(self, channel: str) -> Kafka:
        return self.servers[self.places.get(channel, "kafka")]

    def topic(self, channel: str) -> str:
        return f"{self.prefix}.{channel}"

    def admin(self, channel: str = "in") -> KafkaOffsets:
        return KafkaOffsets(self.server(channel).client_options())

    def create(self, partitions: int = 1, settings: Mapping[str, Mapping[str, str]] | None = None) -> Project:
        for channel in self.channels:
            own = (settings or {}).get(channel, {})
            self.admin(channel).create_topic(
                self.topic(channel), partitions=partitions, replicas=1, settings=own
            )
        return self

    def write(self, route: Mapping[str, Any] | None = None, **pipeline: Any) -> Project:
        """Write contract, context and pipeline; `route` is added to the one route."""
        binding = {"bindings": {"kafka": {"groupId": self.group, "bindingVersion": "0.5.0"}}}
        contract: dict[str, Any] = {
            "asyncapi": "3.0.0",
            "info": {"title": "t", "version": "1.0.0"},
            "servers": {name: {"host": "unused:9092", "protocol": "kafka"} for name in self.servers},
            "channels": {
                name: _channel(self.topic(name), self.places.get(name, "kafka")) for name in self.channels
            },
            "operations": {
                "receive": _operation("receive", "in", **(binding if self.group else {})),
                "send": _operation("send", "out"),
                **{f"send-{name}": _operation("send", name) for name in self.places},
            },
        }
        contract["channels"]["in"]["x-penstock-dead-letter"] = {"$ref": "#/channels/dead"}
        document = {"routes": {"r": {"receive": "receive", "send": "send", **(route or {})}}, **pipeline}
        context = {"contexts": {"test": {"servers": {n: self._context(s) for n, s in self.servers.items()}}}}
        for name, value in (("asyncapi", contract), ("pipeline", document), ("penstock", context)):
            (self.folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")
        return self

    def _context(self, server: Kafka) -> dict[str, Any]:
        known: dict[str, Any] = {"kind": "kafka", "address": server.bootstrap}
        if server.secured:
            known["security"] = {
                "protocol": "sasl_ssl",
                "mechanism": "scram-sha-512",
                "username": "admin",
                "password": "${env:SECRET}",
                "ca_file": str(server.ca_file),
                **self.security,
            }
        return known

    def produce(self, records: Iterable[KafkaRecord], **options: str) -> None:
        from confluent_kafka import Producer

        usual = {**self.server("in").client_options(), "linger.ms": "20", "log_level": "0"}
        producer = Producer({**usual, **options})
        for record in records:
            headers = list(record.headers)
            where = {} if record.partition is None else {"partition": record.partition}
            producer.produce(self.topic("in"), record.value, record.key, headers=headers, **where)
            producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, channel: str) -> list[KafkaRecord]:
        """Read a topic by a plain client, partition by partition."""
        options = {**self.server(channel).client_options(), "fetch.message.max.bytes": "8000000"}
        found = scan(options, self.topic(channel))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def pipeline(self, name: str = "pipeline.yaml") -> Pipeline:
        config = load(start=self.folder)
        return load_pipeline(self.folder / name, context=config.context())

    def run(self, spark: SparkSession, **options: Any) -> Totals:
        """Run the one source in this process; give what was counted."""
        options = {"once": True, **options}
        with job_of(self.pipeline(), JobOptions(**options)) as job:
            job.prepare()
            job.run(spark)
            (totals,) = job.totals.values()
            return totals

    def spawn(self, *words: str, **environment: str) -> Running:
        """Run `penstock` in a process of its own."""
        self.processes.append(Running(self.folder, words, environment))
        return self.processes[-1]


class Running:
    """A `penstock` that runs; what it says is in two files."""

    def __init__(self, folder: Path, words: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.stdout, self.stderr = (folder / f"{uuid.uuid4().hex[:6]}.{name}" for name in ("out", "err"))
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", *words],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def told(self) -> str:
        return self.stderr.read_text(encoding="utf-8")

    def until(self, pattern: str, times: int = 1, seconds: float = 240) -> list[str]:
        """Wait until stderr has a pattern so many times; give what was found."""
        end = time.monotonic() + seconds
        while len(found := re.findall(pattern, self.told())) < times:
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < end, self.told()
            time.sleep(0.05)
        return found

    def ended(self, seconds: float = 240) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
