"""The commands that come with every entry, read and written by kernels: no object for their fields.

SEND and MESSAGE carry an entry behind the command (Pulsar binary protocol, "Payload commands"):

    [0x0e02, size u32, BrokerEntryMetadata] 0x0e01, crc u32, | metadata size u32, MessageMetadata, payload

The checksum covers what follows it. The part in brackets is added by a broker for a reader that asked.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels import (
    BYTES,
    INT,
    INTS,
    OUT,
    PAIR,
    TRUNCATED,
    ByteArray,
    IntArray,
    byte_at,
    copy,
    crc32c_range,
    kernel,
    part,
    scan,
    uvarint_size,
    write_u32,
    write_uvarint,
)

__all__ = ["SEND_HEADROOM", "read_command", "read_entry", "write_send"]

_MAGIC_HIGH = 0x0E
_CHECKSUM = 0x01
_BROKER_ENTRY = 0x02
_LENGTH = 2
_SEND = 6
_RECEIPT = 7
_MESSAGE = 9
SEND_HEADROOM = 128
"""What `write_send` needs in front of a payload, besides the producer's name."""


def _table(fields: dict[tuple[int, int], int]) -> ByteArray:
    table = np.zeros(256, np.uint8)
    for (number, wire), slot in fields.items():
        table[number << 3 | wire] = slot
    return table


# Where `read_command` leaves what it finds; a field with bytes takes two places, begin and size.
TYPE = 1
BODY = 2
OWNER = 4
SEQUENCE = 5
HIGHEST = 6
ID = 7
LEDGER = 9
ENTRY = 10
PARTITION = 11
BATCH_INDEX = 12
REDELIVERIES = 13
COMMAND_END = 14
COMMAND_SLOTS = 15

_COMMAND = _table({(1, 0): TYPE, (_RECEIPT, _LENGTH): BODY, (_MESSAGE, _LENGTH): BODY})
_OF_RECEIPT = _table({(1, 0): OWNER, (2, 0): SEQUENCE, (3, _LENGTH): ID, (4, 0): HIGHEST})
_OF_MESSAGE = _table({(1, 0): OWNER, (2, _LENGTH): ID, (3, 0): REDELIVERIES})
_OF_ID = _table({(1, 0): LEDGER, (2, 0): ENTRY, (3, 0): PARTITION, (4, 0): BATCH_INDEX})


@part(PAIR(BYTES, INT, INT))
def _read_u32(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    if pos < 0 or end - pos < 4:
        return 0, TRUNCATED
    value = byte_at(data, pos) << 24 | byte_at(data, pos + 1) << 16
    return value | byte_at(data, pos + 2) << 8 | byte_at(data, pos + 3), pos + 4


@kernel(INT(BYTES, INTS))
def read_command(frame: ByteArray, found: IntArray) -> int:
    """Read the command of a frame; give its type, or a negative number on error.

    The fields of SEND_RECEIPT and MESSAGE are left in `found`, the end of the command of every type.
    """
    found[:] = -1
    found[HIGHEST] = 0
    found[REDELIVERIES] = 0
    size, pos = _read_u32(frame, 0, len(frame))
    if pos < 0 or size > len(frame) - pos:
        return TRUNCATED
    found[COMMAND_END] = pos + size
    error = scan(frame, pos, pos + size, _COMMAND, found)
    if error < 0 or found[TYPE] < 0:
        return min(error, TRUNCATED)
    kind = found[TYPE]
    if kind not in (_RECEIPT, _MESSAGE):
        return int(kind)
    if found[BODY] < 0:
        return TRUNCATED
    fields = _OF_RECEIPT if kind == _RECEIPT else _OF_MESSAGE
    error = scan(frame, found[BODY], found[BODY] + found[BODY + 1], fields, found)
    if error >= 0 and found[ID] >= 0:
        error = scan(frame, found[ID], found[ID] + found[ID + 1], _OF_ID, found)
    return min(error, TRUNCATED) if error < 0 else int(kind)


# Where `read_entry` leaves what it finds.
BROKER_TIMESTAMP = 1
INDEX = 2
CRC = 3
CHECKED = 4
METADATA = 5
METADATA_SIZE = 6
PRODUCER = 7
PRODUCER_SIZE = 8
SEQUENCE_ID = 9
PUBLISH_TIME = 10
COMPRESSION = 11
UNCOMPRESSED_SIZE = 12
NUM_MESSAGES = 13
ENCRYPTION_KEYS = 14
ENCRYPTION_ALGO = 16
MARKER = 18
CHUNKS = 19
CHUNK_ID = 20
HIGHEST_SEQUENCE_ID = 21
TRANSACTION = 22
ENTRY_SLOTS = 23

_OF_BROKER_ENTRY = _table({(1, 0): BROKER_TIMESTAMP, (2, 0): INDEX})
_OF_METADATA = _table(
    {
        (1, _LENGTH): PRODUCER,
        (2, 0): SEQUENCE_ID,
        (3, 0): PUBLISH_TIME,
        (8, 0): COMPRESSION,
        (9, 0): UNCOMPRESSED_SIZE,
        (11, 0): NUM_MESSAGES,
        (13, _LENGTH): ENCRYPTION_KEYS,
        (14, _LENGTH): ENCRYPTION_ALGO,
        (20, 0): MARKER,
        (23, 0): TRANSACTION,
        (24, 0): HIGHEST_SEQUENCE_ID,
        (27, 0): CHUNKS,
        (29, 0): CHUNK_ID,
    }
)


@part(INT(BYTES, INT, INT))
def _magic(data: ByteArray, pos: int, end: int) -> int:
    """Give the second byte of a magic number at data[pos], 0 if there is none."""
    if end - pos < 2 or byte_at(data, pos) != _MAGIC_HIGH:
        return 0
    return byte_at(data, pos + 1)


@kernel(INT(BYTES, INT, INT, INTS))
def read_entry(data: ByteArray, pos: int, end: int, found: IntArray) -> int:
    """Read what stands before the payload of the entry data[pos:end]; give where the payload begins."""
    found[:] = -1
    found[COMPRESSION] = 0
    found[UNCOMPRESSED_SIZE] = 0
    if _magic(data, pos, end) == _BROKER_ENTRY:
        size, pos = _read_u32(data, pos + 2, end)
        if pos < 0 or size > end - pos:
            return TRUNCATED
        pos = scan(data, pos, pos + size, _OF_BROKER_ENTRY, found)
        if pos < 0:
            return pos
    if _magic(data, pos, end) == _CHECKSUM:
        found[CRC], pos = _read_u32(data, pos + 2, end)
        found[CHECKED] = pos
    size, pos = _read_u32(data, pos, end)
    if pos < 0 or size > end - pos:
        return TRUNCATED
    found[METADATA] = pos
    found[METADATA_SIZE] = size
    return scan(data, pos, pos + size, _OF_METADATA, found)


@part(INT(INT))
def _field_size(value: int) -> int:
    """Give the size of a varint field with a number below 16, tag included; 0 if it is left out."""
    return 0 if value < 0 else 1 + uvarint_size(value)


@part(INT(OUT, INT, INT, INT))
def _write_field(out: ByteArray, at: int, tag: int, value: int) -> int:
    if value < 0:
        return at
    out[at] = tag
    return write_uvarint(out, at + 1, value)


@part(INT(OUT, INT, INT, INT, INT, INT, INT))
def _write_command(
    out: ByteArray, at: int, size: int, producer_id: int, sequence_id: int, messages: int, highest: int
) -> int:
    """Write BaseCommand with a CommandSend of `size` bytes."""
    out[at] = 1 << 3
    out[at + 1] = _SEND
    out[at + 2] = _SEND << 3 | _LENGTH
    at = write_uvarint(out, at + 3, size)
    at = _write_field(out, at, 1 << 3, producer_id)
    at = _write_field(out, at, 2 << 3, sequence_id)
    at = _write_field(out, at, 3 << 3, messages)
    return _write_field(out, at, 6 << 3, highest)


@part(INT(OUT, INT, BYTES, INT, INT, INT, INT, INT, INT))
def _write_metadata(
    out: ByteArray,
    at: int,
    name: ByteArray,
    sequence_id: int,
    publish_time: int,
    compression: int,
    uncompressed: int,
    messages: int,
    highest: int,
) -> int:
    """Write MessageMetadata."""
    out[at] = 1 << 3 | _LENGTH
    at = write_uvarint(out, at + 1, len(name))
    at = copy(name, 0, out, at, len(name))
    at = _write_field(out, at, 2 << 3, sequence_id)
    at = _write_field(out, at, 3 << 3, publish_time)
    at = _write_field(out, at, 8 << 3, compression)
    at = _write_field(out, at, 9 << 3, uncompressed)
    at = _write_field(out, at, 11 << 3, messages)
    if highest >= 0:
        # Field 24 is the only one whose tag needs two bytes.
        out[at] = 0xC0
        out[at + 1] = 0x01
        at = write_uvarint(out, at + 2, highest)
    return at


@kernel(INT(OUT, INT, INT, BYTES, INT, INT, INT, INT, INT, INT, INT))
def write_send(
    out: ByteArray,
    payload: int,
    end: int,
    name: ByteArray,
    producer_id: int,
    sequence_id: int,
    highest: int,
    messages: int,
    publish_time: int,
    compression: int,
    uncompressed: int,
) -> int:
    """Write a SEND frame up to its payload out[payload:end], ending where the payload begins.

    Gives where the frame begins; negative if there is too little room before the payload. Numbers below 0
    are left out.
    """
    command = (
        _field_size(producer_id) + _field_size(sequence_id) + _field_size(messages) + _field_size(highest)
    )
    metadata = 1 + uvarint_size(len(name)) + len(name) + _field_size(sequence_id) + _field_size(publish_time)
    metadata += _field_size(compression) + _field_size(uncompressed) + _field_size(messages)
    metadata += 0 if highest < 0 else 2 + uvarint_size(highest)
    base = 3 + uvarint_size(command) + command
    # Two sizes, the command; magic, checksum and a size; the metadata.
    start = payload - 8 - base - 10 - metadata
    if start < 0:
        return TRUNCATED
    at = write_u32(out, start, end - start - 4)
    at = write_u32(out, at, base)
    at = _write_command(out, at, command, producer_id, sequence_id, messages, highest)
    out[at] = _MAGIC_HIGH
    out[at + 1] = _CHECKSUM
    checksum = at + 2
    at = write_u32(out, checksum + 4, metadata)
    _write_metadata(out, at, name, sequence_id, publish_time, compression, uncompressed, messages, highest)
    write_u32(out, checksum, crc32c_range(out, checksum + 4, end, 0))
    return start
