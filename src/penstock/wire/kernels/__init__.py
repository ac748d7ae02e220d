"""Compiled loops over whole batches of bytes, shared by gateway and pipeline.

| module    | what is in it                                                             |
|-----------|---------------------------------------------------------------------------|
| jit       | `kernel`, `part`, `inner`, the decorators; types; `cache_misses`           |
| varint    | `read_varint`, `write_varint` (zigzag), `read_uvarint`, `write_uvarint`    |
| words     | eight bytes at a time: `word_at`, `put_word`, tests of all eight           |
| copying   | `copy` of a range, `write_u32`                                            |
| protobuf  | `read_field`, `scan`: fields of a message without objects                 |
| utf8      | `is_utf8`                                                                 |
| base64    | `encode_base64`, `decode_base64` and their sizes                          |
| checksum  | `crc32c` of a buffer, by instruction; `crc32c_range` inside kernels       |
| hashing   | `murmur2`, `partition_of`: Kafka's partitioner; loaded by its users only   |
| json      | `scan_json`: whole values validated, paths found; loaded by its users only |
| records   | the records of a Kafka batch, where they stand; loaded by its users only   |
| sha256    | `sha256_hex`; loaded by its users only                                    |
| sha_instructions | a block of it by the processor's own instructions, where it has them |
| routing   | events from record bytes to record bytes; loaded by its users only        |

Rules: arrays of uint8 and 64-bit signed integers only; one signature each, compiled at import and
kept in Numba's cache (NUMBA_CACHE_DIR, else beside the source, else in the user's cache folder);
bounds checks on; an error is a negative result, never an exception; NUMBA_DISABLE_JIT=1 runs the
same source as plain Python.
"""

from __future__ import annotations

from penstock.wire.kernels import jit
from penstock.wire.kernels.base64 import base64_decoded_size, base64_size, decode_base64, encode_base64
from penstock.wire.kernels.checksum import crc32c, crc32c_range
from penstock.wire.kernels.copying import copy, write_u32
from penstock.wire.kernels.jit import (
    BYTES,
    INT,
    INTS,
    OUT,
    PAIR,
    ByteArray,
    IntArray,
    cache_misses,
    kernel,
    part,
)
from penstock.wire.kernels.protobuf import BAD_FIELD, read_field, scan
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import (
    BAD_VARINT,
    TRUNCATED,
    byte_at,
    read_uvarint,
    read_varint,
    uvarint_size,
    varint_size,
    write_uvarint,
    write_varint,
)

__all__ = [
    "BAD_FIELD",
    "BAD_VARINT",
    "BYTES",
    "INT",
    "INTS",
    "OUT",
    "PAIR",
    "TRUNCATED",
    "ByteArray",
    "IntArray",
    "base64_decoded_size",
    "base64_size",
    "byte_at",
    "cache_misses",
    "copy",
    "crc32c",
    "crc32c_range",
    "decode_base64",
    "encode_base64",
    "is_utf8",
    "jit",
    "kernel",
    "part",
    "read_field",
    "read_uvarint",
    "read_varint",
    "scan",
    "uvarint_size",
    "varint_size",
    "write_u32",
    "write_uvarint",
    "write_varint",
]
