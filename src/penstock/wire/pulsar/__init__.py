"""The Pulsar binary protocol as bytes: commands, entries, checksums, compression, message ids.

| module        | what is in it                                                                        |
|---------------|--------------------------------------------------------------------------------------|
| commands      | `encode_command`, `encode_flow`; `decode_command` gives SendReceipt, Message, Command |
| entry         | `read_entry`, `Entry`; `send_frame` (in place, fast), `encode_send` (any metadata)    |
| compression   | LZ4, ZLIB, ZSTD, SNAPPY, inflated to a limit                                         |
| message_id    | `MessageId`                                                                          |
| hot           | the kernels below `commands` and `entry`                                             |
| pulsar_pb2    | every command, MessageMetadata and SingleMessageMetadata, generated from pulsar.proto |

Frames are cut by `penstock.wire.framing.FrameBuffer`. Bytes that break the protocol raise WireError.
"""

from __future__ import annotations

from penstock.wire.pulsar.commands import (
    Command,
    Message,
    SendReceipt,
    decode_command,
    encode_command,
    encode_flow,
)
from penstock.wire.pulsar.compression import Compression
from penstock.wire.pulsar.entry import Entry, encode_send, read_entry, send_frame
from penstock.wire.pulsar.hot import SEND_HEADROOM
from penstock.wire.pulsar.message_id import EARLIEST, LATEST, MessageId

__all__ = [
    "EARLIEST",
    "LATEST",
    "SEND_HEADROOM",
    "Command",
    "Compression",
    "Entry",
    "Message",
    "MessageId",
    "SendReceipt",
    "decode_command",
    "encode_command",
    "encode_flow",
    "encode_send",
    "read_entry",
    "send_frame",
]
