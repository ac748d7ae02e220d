"""The hand-written answers, in every version, against kio: it reads what we write and writes the same."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from penstock.wire.kafka import APIS
from penstock.wire.kafka.answers.api_versions import encode_api_versions
from penstock.wire.kafka.answers.fetch import FetchAnswer, PartitionFetched, TopicFetched, encode_fetch
from penstock.wire.kafka.answers.groups import (
    OffsetCommitAnswer,
    TopicCommitted,
    encode_heartbeat,
    encode_offset_commit,
)
from penstock.wire.kafka.answers.leaders import NodeEndpoint
from penstock.wire.kafka.answers.list_offsets import (
    ListOffsetsAnswer,
    PartitionOffset,
    TopicOffsets,
    encode_list_offsets,
)
from penstock.wire.kafka.answers.metadata import (
    Broker,
    MetadataAnswer,
    PartitionMetadata,
    TopicMetadata,
    encode_metadata,
)
from penstock.wire.kafka.answers.produce import (
    PartitionProduced,
    ProduceAnswer,
    RecordError,
    TopicProduced,
    encode_produce,
    encode_produced_one,
)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
nodes = st.integers(0, 1000)
codes = st.sampled_from([int(code) for code in KioErrorCode])
throttle = st.integers(0, 1 << 30)
names = st.text(max_size=10)
nullable = st.none() | names
uuids = st.uuids()


class Kio:
    """The classes of one version of one answer; fields that the version does not have are left out."""

    def __init__(self, key: int, version: int) -> None:
        self.module = load_payload_module(key, version, EntityType.response)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        made = getattr(self.module, name)
        known = {field.name for field in fields(made)}
        return lambda **values: made(**{key: value for key, value in values.items() if key in known})


def versions(key: int) -> list[int]:
    return list(range(APIS[key].lowest, APIS[key].highest + 1))


def check(expected: Any, body: bytes) -> None:
    out = io.BytesIO()
    entity_writer(type(expected))(out, expected)
    assert body.hex(" ") == out.getvalue().hex(" ")
    assert entity_reader(type(expected))(body, 0) == (expected, len(body))


def milliseconds(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def moment(value: int) -> datetime.datetime | None:
    return None if value == -1 else datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)


def topic_id(value: UUID) -> UUID | None:
    return value if value.int else None


endpoints = st.lists(st.builds(NodeEndpoint, nodes, names, nodes, nullable), max_size=2).map(tuple)


def kio_endpoints(kio: Kio, given_endpoints: tuple[NodeEndpoint, ...], version: int, since: int) -> Any:
    if version < since:
        return ()
    return tuple(
        kio.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in given_endpoints
    )


def kio_leader(kio: Kio, part: PartitionProduced | PartitionFetched, version: int, since: int) -> Any:
    if version < since:
        return None
    known = part.leader_id >= 0
    return kio.LeaderIdAndEpoch(
        leader_id=part.leader_id if known else -1, leader_epoch=part.leader_epoch if known else -1
    )


produced = st.builds(
    PartitionProduced,
    index=int32,
    error_code=codes,
    base_offset=int64,
    log_append_time=st.just(-1) | st.integers(0, 10**9).map(lambda seconds: seconds * 1000),
    log_start_offset=int64,
    record_errors=st.lists(st.builds(RecordError, int32, nullable), max_size=2).map(tuple),
    error_message=nullable,
    leader_id=st.just(-1) | nodes,
    leader_epoch=nodes,
)
produce_answers = st.builds(
    ProduceAnswer,
    topics=st.lists(
        st.builds(
            TopicProduced, name=names, topic_id=uuids, partitions=st.lists(produced, max_size=3).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    throttle_time_ms=throttle,
    node_endpoints=endpoints,
)


def check_produce(answer: ProduceAnswer, version: int) -> None:
    kio = Kio(0, version)
    expected = kio.ProduceResponse(
        responses=tuple(
            kio.TopicProduceResponse(
                name=topic.name,
                topic_id=topic_id(topic.topic_id),
                partition_responses=tuple(
                    kio.PartitionProduceResponse(
                        index=part.index,
                        error_code=KioErrorCode(part.error_code),
                        base_offset=part.base_offset,
                        log_append_time=moment(part.log_append_time),
                        log_start_offset=part.log_start_offset,
                        record_errors=tuple(
                            kio.BatchIndexAndErrorMessage(
                                batch_index=error.batch_index, batch_index_error_message=error.message
                            )
                            for error in (part.record_errors if version >= 8 else ())
                        ),
                        error_message=part.error_message,
                        current_leader=kio_leader(kio, part, version, 10),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in answer.topics
        ),
        throttle_time=milliseconds(answer.throttle_time_ms),
        node_endpoints=kio_endpoints(kio, answer.node_endpoints, version, 10),
    )
    check(expected, encode_produce(answer, version))


@given(produce_answers)
def test_produce(answer: ProduceAnswer) -> None:
    for version in versions(0):
        check_produce(answer, version)


fetched = st.builds(
    PartitionFetched,
    index=int32,
    error_code=codes,
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted_transactions=st.none() | st.lists(st.tuples(int64, int64), max_size=2).map(tuple),
    preferred_read_replica=st.just(-1) | nodes,
    leader_id=st.just(-1) | nodes,
    leader_epoch=nodes,
    records=st.lists(st.binary(max_size=200), max_size=3).map(tuple),
)
fetch_answers = st.builds(
    FetchAnswer,
    topics=st.lists(
        st.builds(
            TopicFetched, name=names, topic_id=uuids, partitions=st.lists(fetched, max_size=3).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    throttle_time_ms=throttle,
    error_code=codes,
    session_id=int32,
    node_endpoints=endpoints,
)


def check_fetch(answer: FetchAnswer, version: int) -> None:
    kio = Kio(1, version)
    expected = kio.FetchResponse(
        throttle_time=milliseconds(answer.throttle_time_ms),
        error_code=KioErrorCode(answer.error_code),
        session_id=answer.session_id,
        responses=tuple(
            kio.FetchableTopicResponse(
                topic=topic.name,
                topic_id=topic_id(topic.topic_id),
                partitions=tuple(
                    kio.PartitionData(
                        partition_index=part.index,
                        error_code=KioErrorCode(part.error_code),
                        high_watermark=part.high_watermark,
                        last_stable_offset=part.last_stable_offset,
                        log_start_offset=part.log_start_offset,
                        current_leader=kio_leader(kio, part, version, 12),
                        aborted_transactions=None
                        if part.aborted_transactions is None
                        else tuple(
                            kio.AbortedTransaction(producer_id=producer, first_offset=first)
                            for producer, first in part.aborted_transactions
                        ),
                        preferred_read_replica=part.preferred_read_replica,
                        records=b"".join(part.records),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in answer.topics
        ),
        node_endpoints=kio_endpoints(kio, answer.node_endpoints, version, 16),
    )
    check(expected, b"".join(encode_fetch(answer, version)))


@given(fetch_answers)
def test_fetch(answer: FetchAnswer) -> None:
    for version in versions(1):
        check_fetch(answer, version)


def test_fetch_passes_records_on_without_a_copy() -> None:
    records = memoryview(bytes(1000))
    part = PartitionFetched(index=0, records=(records,))
    pieces = list(encode_fetch(FetchAnswer(topics=(TopicFetched(name="t", partitions=(part,)),)), 12))
    assert any(piece is records for piece in pieces)


partitions = st.builds(
    PartitionMetadata,
    index=int32,
    leader_id=int32,
    error_code=codes,
    leader_epoch=int32,
    replicas=st.lists(int32, max_size=3).map(tuple),
    in_sync=st.lists(int32, max_size=3).map(tuple),
    offline=st.lists(int32, max_size=3).map(tuple),
)
metadata_answers = st.builds(
    MetadataAnswer,
    brokers=st.lists(st.builds(Broker, nodes, names, nodes, nullable), max_size=2).map(tuple),
    topics=st.lists(
        st.builds(
            TopicMetadata,
            name=names,
            topic_id=uuids,
            error_code=codes,
            is_internal=st.booleans(),
            partitions=st.lists(partitions, max_size=3).map(tuple),
            authorized_operations=int32,
        ),
        max_size=2,
    ).map(tuple),
    cluster_id=nullable,
    controller_id=int32,
    throttle_time_ms=throttle,
    cluster_authorized_operations=int32,
    error_code=codes,
)


def kio_metadata(answer: MetadataAnswer, version: int) -> Any:
    kio = Kio(3, version)
    return kio.MetadataResponse(
        throttle_time=milliseconds(answer.throttle_time_ms),
        brokers=tuple(
            kio.MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in answer.brokers
        ),
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        topics=tuple(
            kio.MetadataResponseTopic(
                error_code=KioErrorCode(topic.error_code),
                name=topic.name,
                topic_id=topic_id(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=tuple(
                    kio.MetadataResponsePartition(
                        error_code=KioErrorCode(part.error_code),
                        partition_index=part.index,
                        leader_id=part.leader_id,
                        leader_epoch=part.leader_epoch,
                        replica_nodes=part.replicas,
                        isr_nodes=part.in_sync,
                        offline_replicas=part.offline,
                    )
                    for part in topic.partitions
                ),
                topic_authorized_operations=topic.authorized_operations,
            )
            for topic in answer.topics
        ),
        cluster_authorized_operations=answer.cluster_authorized_operations,
        error_code=KioErrorCode(answer.error_code),
    )


def check_metadata(answer: MetadataAnswer, version: int) -> None:
    check(kio_metadata(answer, version), encode_metadata(answer, version))


@given(metadata_answers)
def test_metadata(answer: MetadataAnswer) -> None:
    for version in versions(3):
        check_metadata(answer, version)


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_of_an_unknown_id_has_no_name(version: int) -> None:
    answer = MetadataAnswer(
        brokers=(), topics=(TopicMetadata(name=None, topic_id=UUID(int=7), error_code=100),)
    )
    check(kio_metadata(answer, version), encode_metadata(answer, version))


ranges = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20), st.integers(0, 20)), max_size=5)


def check_api_versions(rows: list[tuple[int, int, int]], code: int, throttled: int, version: int) -> None:
    kio = Kio(18, version)
    expected = kio.ApiVersionsResponse(
        error_code=KioErrorCode(code),
        api_keys=tuple(
            kio.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows
        ),
        throttle_time=milliseconds(throttled),
    )
    check(expected, encode_api_versions(rows, version, error_code=code, throttle_time_ms=throttled))


@given(ranges, codes, throttle)
def test_api_versions(rows: list[tuple[int, int, int]], code: int, throttled: int) -> None:
    for version in versions(18):
        check_api_versions(rows, code, throttled, version)


offsets = st.builds(
    PartitionOffset, index=int32, error_code=codes, timestamp=int64, offset=int64, leader_epoch=int32
)
list_offsets_answers = st.builds(
    ListOffsetsAnswer,
    topics=st.lists(
        st.builds(TopicOffsets, name=names, partitions=st.lists(offsets, max_size=3).map(tuple)), max_size=2
    ).map(tuple),
    throttle_time_ms=throttle,
)


def check_list_offsets(answer: ListOffsetsAnswer, version: int) -> None:
    kio = Kio(2, version)
    expected = kio.ListOffsetsResponse(
        throttle_time=milliseconds(answer.throttle_time_ms),
        topics=tuple(
            kio.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    kio.ListOffsetsPartitionResponse(
                        partition_index=part.index,
                        error_code=KioErrorCode(part.error_code),
                        timestamp=part.timestamp,
                        offset=part.offset,
                        leader_epoch=part.leader_epoch,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in answer.topics
        ),
    )
    check(expected, encode_list_offsets(answer, version))


@given(list_offsets_answers)
def test_list_offsets(answer: ListOffsetsAnswer) -> None:
    for version in versions(2):
        check_list_offsets(answer, version)


def check_heartbeat(code: int, throttled: int, version: int) -> None:
    expected = Kio(12, version).HeartbeatResponse(
        throttle_time=milliseconds(throttled), error_code=KioErrorCode(code)
    )
    check(expected, encode_heartbeat(version, error_code=code, throttle_time_ms=throttled))


@given(codes, throttle)
def test_heartbeat(code: int, throttled: int) -> None:
    for version in versions(12):
        check_heartbeat(code, throttled, version)


commit_answers = st.builds(
    OffsetCommitAnswer,
    topics=st.lists(
        st.builds(
            TopicCommitted,
            name=names,
            topic_id=uuids,
            partitions=st.lists(st.tuples(int32, codes), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    throttle_time_ms=throttle,
)


def check_offset_commit(answer: OffsetCommitAnswer, version: int) -> None:
    kio = Kio(8, version)
    expected = kio.OffsetCommitResponse(
        throttle_time=milliseconds(answer.throttle_time_ms),
        topics=tuple(
            kio.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic_id(topic.topic_id),
                partitions=tuple(
                    kio.OffsetCommitResponsePartition(partition_index=index, error_code=KioErrorCode(code))
                    for index, code in topic.partitions
                ),
            )
            for topic in answer.topics
        ),
    )
    check(expected, encode_offset_commit(answer, version))


@given(commit_answers)
def test_offset_commit(answer: OffsetCommitAnswer) -> None:
    for version in versions(8):
        check_offset_commit(answer, version)


def test_an_empty_answer_in_golden_bytes() -> None:
    # Error 35, one API: ApiVersions 0 to 4, in the form of version 0 (KIP-511).
    body = encode_api_versions([(18, 0, 4)], 0, error_code=35)
    assert body.hex(" ") == "00 23 00 00 00 01 00 12 00 00 00 04"


@given(names, uuids, st.integers(0, 1000), st.integers(0, 1 << 60), st.integers(-1, 1 << 60))
def test_the_short_way_for_one_partition_writes_the_same(
    name: str, topic_id: UUID, index: int, base: int, start: int
) -> None:
    for version in versions(0):
        one = PartitionProduced(index=index, base_offset=base, log_start_offset=start)
        topic = TopicProduced(name=name, topic_id=topic_id, partitions=(one,))
        short = encode_produced_one(name, topic_id, index, version, base_offset=base, log_start_offset=start)
        assert short == encode_produce(ProduceAnswer(topics=(topic,)), version)
