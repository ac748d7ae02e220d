"""The job on quixstreams, one process, at least once (its default)."""

from __future__ import annotations

import job
from quixstreams import Application


def main() -> None:
    application = Application(
        job.BOOTSTRAP,
        consumer_group=job.GROUP,
        auto_offset_reset="earliest",
        producer_extra_config=job.PRODUCER,
        auto_create_topics=False,
        loglevel="ERROR",
    )
    source = application.topic(job.SOURCE, key_deserializer="bytes", value_deserializer="bytes")
    target = application.topic(job.TARGET, key_serializer="bytes", value_serializer="bytes")
    frame = application.dataframe(source)
    frame = frame.apply(lambda value, key, time, headers: job.structured(headers, value), metadata=True)
    frame = frame.filter(lambda value: value is not None)
    frame = frame.set_headers(lambda value, key, time, headers: job.HEADERS)
    frame.to_topic(target)
    application.run()


if __name__ == "__main__":
    main()
