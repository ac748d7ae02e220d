"""The requests that this client sends, each in the one version that it speaks.

Where nothing else is said, brokers from Kafka 2.5 to 4.3 serve it, and our gateway does if it has the request
at all. A connection compares them with what its broker says it serves (ApiVersions) before it sends one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.wire.kafka.apis import APIS, is_flexible

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "API_VERSIONS",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_PRODUCERS",
    "END_TXN",
    "FETCH",
    "FIND_COORDINATOR",
    "INIT_PRODUCER_ID",
    "LIST_OFFSETS",
    "METADATA",
    "METADATA_WITH_IDS",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "RENEW_PRODUCER_ID",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "TXN_OFFSET_COMMIT",
    "Call",
]


class Call(NamedTuple):
    """An API in a version."""

    key: int
    version: int

    @property
    def name(self) -> str:
        """The name of the API."""
        return APIS[self.key].name

    @property
    def flexible(self) -> bool:
        """Whether lengths are compact and structures have tags."""
        return is_flexible(self.key, self.version)


PRODUCE: Final = Call(0, 8)
"""8 is the first that names the records for whose sake a batch is refused (KIP-467)."""
FETCH: Final = Call(1, 10)
"""10 is the first with zstd; has the leader epoch (KIP-320) and the aborted transactions."""
LIST_OFFSETS: Final = Call(2, 5)
METADATA: Final = Call(3, 7)
"""7 is the first with the leader epoch."""
METADATA_WITH_IDS: Final = Call(3, 12)
"""Has the ids of topics (KIP-516). Only brokers from Kafka 2.8 have it; who asks can do without."""
OFFSET_COMMIT: Final = Call(8, 6)
OFFSET_FETCH: Final = Call(9, 7)
"""7 is the first that waits for offsets of open transactions (KIP-447)."""
FIND_COORDINATOR: Final = Call(10, 2)
SASL_HANDSHAKE: Final = Call(17, 1)
API_VERSIONS: Final = Call(18, 0)
INIT_PRODUCER_ID: Final = Call(22, 1)
RENEW_PRODUCER_ID: Final = Call(22, 3)
"""3 is the first in which a producer says which id and epoch it has (KIP-360)."""
ADD_PARTITIONS_TO_TXN: Final = Call(24, 1)
ADD_OFFSETS_TO_TXN: Final = Call(25, 1)
END_TXN: Final = Call(26, 1)
TXN_OFFSET_COMMIT: Final = Call(28, 2)
DESCRIBE_CONFIGS: Final = Call(32, 2)
SASL_AUTHENTICATE: Final = Call(36, 1)
DESCRIBE_PRODUCERS: Final = Call(61, 0)
"""Only brokers from Kafka 2.8 have it; who asks can do without."""
