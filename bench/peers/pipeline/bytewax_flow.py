"""The job on bytewax, one process, without recovery (its default)."""

from __future__ import annotations

import bytewax.operators as op
import job
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow


def route(message: KafkaSourceMessage) -> KafkaSinkMessage | None:
    value = job.structured(message.headers, message.value)
    return None if value is None else KafkaSinkMessage(message.key, value, headers=job.HEADERS)


flow = Dataflow("bench")
_read = op.input("in", flow, KafkaSource([job.BOOTSTRAP], [job.SOURCE], batch_size=1000))
_routed = op.filter_map("route", _read, route)
op.output(
    "out",
    _routed,
    KafkaSink([job.BOOTSTRAP], job.TARGET, add_config={k: str(v) for k, v in job.PRODUCER.items()}),
)
