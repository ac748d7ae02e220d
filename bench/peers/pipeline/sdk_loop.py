"""A consumer, the CloudEvents SDK, a producer; offsets are committed by the consumer's clock."""

from __future__ import annotations

import job
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Consumer, Producer


def main() -> None:
    consumer = Consumer(
        {"bootstrap.servers": job.BOOTSTRAP, "group.id": job.GROUP, "auto.offset.reset": "earliest"}
    )
    producer = Producer({"bootstrap.servers": job.BOOTSTRAP, **job.PRODUCER})
    consumer.subscribe([job.SOURCE])
    while True:
        messages = consumer.consume(1000, 0.2)
        for message in messages:
            incoming = KafkaMessage(dict(message.headers() or ()), message.key(), message.value())
            event = from_kafka_event(incoming)
            data = event.get_data()
            if event.get_type() != "com.shop.order.placed" or data["amount"] <= 100:
                continue
            event = CloudEvent({**event.get_attributes(), "subject": data["customer"]}, data)
            written = to_structured_event(event)
            while True:
                try:
                    producer.produce(
                        job.TARGET, written.value, message.key(), headers=list(written.headers.items())
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        if not messages:
            producer.flush(1)


if __name__ == "__main__":
    main()
