"""The APIs that a Kafka 4.3.1 broker serves: key, name, versions, first flexible version (KIP-482).

The gateway serves some of them, at most in these versions. A flexible version has compact lengths
and tagged fields in its body, request header v2 and response header v1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = [
    "APIS",
    "API_VERSIONS",
    "PRODUCE",
    "PRODUCE_ADVERTISED_FROM",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "Api",
    "is_flexible",
    "response_header_tags",
]

NEVER = 1 << 15
"""No version is flexible."""

PRODUCE = 0
FETCH = 1
METADATA = 3
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

PRODUCE_ADVERTISED_FROM = 0
"""KAFKA-18659: librdkafka turns compression off if Produce 0 to 2 are not advertised; they are refused."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API of the protocol."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int


_ROWS = (
    Api(0, "Produce", 3, 13, 9),
    Api(1, "Fetch", 4, 18, 12),
    Api(2, "ListOffsets", 1, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(8, "OffsetCommit", 2, 10, 8),
    Api(9, "OffsetFetch", 1, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1, NEVER),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 2, 7, 5),
    Api(20, "DeleteTopics", 1, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 5, 2),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 5, 3),
    Api(27, "WriteTxnMarkers", 1, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 1, 3, 2),
    Api(30, "CreateAcls", 1, 3, 2),
    Api(31, "DeleteAcls", 1, 3, 2),
    Api(32, "DescribeConfigs", 1, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2),
    Api(35, "DescribeLogDirs", 1, 5, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 1, 3, 2),
    Api(39, "RenewDelegationToken", 1, 2, 2),
    Api(40, "ExpireDelegationToken", 1, 2, 2),
    Api(41, "DescribeDelegationToken", 1, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, NEVER),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(55, "DescribeQuorum", 0, 2, 0),
    Api(57, "UpdateFeatures", 0, 2, 0),
    Api(60, "DescribeCluster", 0, 2, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(64, "UnregisterBroker", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0),
    Api(72, "PushTelemetry", 0, 0, 0),
    Api(74, "ListConfigResources", 0, 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 1, 0),
    Api(77, "ShareGroupDescribe", 1, 1, 0),
    Api(78, "ShareFetch", 1, 2, 0),
    Api(79, "ShareAcknowledge", 1, 2, 0),
    Api(80, "AddRaftVoter", 0, 1, 0),
    Api(81, "RemoveRaftVoter", 0, 0, 0),
    Api(83, "InitializeShareGroupState", 0, 0, 0),
    Api(84, "ReadShareGroupState", 0, 0, 0),
    Api(85, "WriteShareGroupState", 0, 1, 0),
    Api(86, "DeleteShareGroupState", 0, 0, 0),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0, 0),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

APIS: dict[int, Api] = {api.key: api for api in _ROWS}
"""Every API by its key."""


def is_flexible(key: int, version: int) -> bool:
    """Say whether this version of an API is flexible; an unknown API is not."""
    api = APIS.get(key)
    return api is not None and version >= api.flexible_from


@cache
def response_header_tags(key: int, version: int) -> bytes:
    """Give what follows the correlation id in the header of an answer."""
    # KIP-511: the answer to ApiVersions always has header v0, because it may answer an unknown version.
    return b"\0" if key != API_VERSIONS and is_flexible(key, version) else b""
