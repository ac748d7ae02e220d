"""The progress topic of a cluster: planned, made at the start if missing, refused if it would lose marks."""

from __future__ import annotations

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.contract.desired import WantedKafkaTopic
from penstock.errors import ClusterError, PipelineError
from penstock.pipeline.delivery.progress import SETTINGS, TOPIC

__all__ = ["require_progress_topic", "wanted_progress_topic"]

_RIGHTS = f"topic {TOPIC}: Describe, Read and Write, and Create where it is missing"


def wanted_progress_topic(server: str, sources: tuple[str, ...], place: str) -> WantedKafkaTopic:
    """Return the topic as `penstock apply --pipeline` makes it, with the settings that a job gives it."""
    return WantedKafkaTopic(
        server=server,
        topic=TOPIC,
        partitions=1,
        may_have_more=True,
        settings=tuple(sorted(SETTINGS.items())),
        place=f"{place}: how far {', '.join(sources)} is",
    )


def require_progress_topic(admin: KafkaAdmin, server: str) -> None:
    """Make the topic if it is not there; PipelineError if it cannot be made or forgets marks."""
    if TOPIC not in admin.cluster([TOPIC]).topics:
        try:
            admin.create_topic(TOPIC, partitions=1, replicas=None, settings=SETTINGS)
        except ClusterError as exc:
            # Another job may have made it at the same moment.
            if TOPIC not in admin.cluster([TOPIC]).topics:
                raise PipelineError(
                    f"{server} has no topic {TOPIC}, and it cannot be made: {exc.what}",
                    where=admin.address,
                    why=exc.why or "It keeps how far a source is whose input is on another cluster.",
                    next="penstock apply --pipeline FILE makes it, by a user who may; or give this one the "
                    f"rights ({_RIGHTS}); or run --at-least-once, which needs none",
                ) from exc
        return
    try:
        found = admin.settings([TOPIC]).get(TOPIC, {})
    except ClusterError:
        return  # no right to look at settings: what is read later decides
    policy = found["cleanup.policy"].value if "cleanup.policy" in found else "compact"
    if policy != "compact":
        raise PipelineError(
            f"{TOPIC} of {server} has cleanup.policy={policy}, and would forget how far sources are",
            where=admin.address,
            next=f"set cleanup.policy=compact on {TOPIC}",
        )
