"""Base64 (RFC 4648 section 4): the standard alphabet, padded, decoded strictly."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, OUT, ByteArray, kernel
from penstock.wire.kernels.varint import byte_at

__all__ = ["base64_decoded_size", "base64_size", "decode_base64", "encode_base64"]

_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_VALUES = np.full(256, 0xFF, np.uint8)
_VALUES[_LETTERS] = np.arange(64, dtype=np.uint8)
_NOT_A_LETTER = 0x40
_PAD = 0x3D


@kernel(INT(INT))
def base64_size(size: int) -> int:
    """Give the length of the text for so many bytes."""
    return (size + 2) // 3 * 4


@kernel(INT(BYTES, INT, INT, OUT, INT))
def encode_base64(data: ByteArray, pos: int, end: int, out: ByteArray, at: int) -> int:
    """Write data[pos:end] as text at out[at]; give the position behind it."""
    while pos + 3 <= end:
        bits = byte_at(data, pos) << 16 | byte_at(data, pos + 1) << 8 | byte_at(data, pos + 2)
        out[at] = _LETTERS[bits >> 18]
        out[at + 1] = _LETTERS[(bits >> 12) & 63]
        out[at + 2] = _LETTERS[(bits >> 6) & 63]
        out[at + 3] = _LETTERS[bits & 63]
        pos += 3
        at += 4
    if pos < end:
        two = pos + 2 == end
        bits = byte_at(data, pos) << 16 | (byte_at(data, pos + 1) << 8 if two else 0)
        out[at] = _LETTERS[bits >> 18]
        out[at + 1] = _LETTERS[(bits >> 12) & 63]
        out[at + 2] = _LETTERS[(bits >> 6) & 63] if two else _PAD
        out[at + 3] = _PAD
        at += 4
    return at


@kernel(INT(BYTES, INT, INT))
def base64_decoded_size(data: ByteArray, pos: int, end: int) -> int:
    """Give the number of bytes that the text data[pos:end] stands for; -1 if it is not base64."""
    size = end - pos
    if size == 0:
        return 0
    if size & 3:
        return -1
    pad = int(byte_at(data, end - 1) == _PAD)
    pad += int(pad == 1 and byte_at(data, end - 2) == _PAD)
    for i in range(pos, end - pad):
        if byte_at(_VALUES, byte_at(data, i)) >= _NOT_A_LETTER:
            return -1
    # RFC 4648 section 3.5: pad bits must be zero, else two texts would stand for the same bytes.
    spare = (0, 0x03, 0x0F)[pad]
    if byte_at(_VALUES, byte_at(data, end - pad - 1)) & spare:
        return -1
    return size // 4 * 3 - pad


@kernel(INT(BYTES, INT, INT, OUT, INT))
def decode_base64(data: ByteArray, pos: int, end: int, out: ByteArray, at: int) -> int:
    """Write the bytes of a text, checked by `base64_decoded_size`, at out[at]; give the position behind."""
    last = at + base64_decoded_size(data, pos, end)
    while pos < end:
        bits = 0
        for i in range(pos, pos + 4):
            bits = bits << 6 | (byte_at(_VALUES, byte_at(data, i)) & 63)
        for i in range(min(3, last - at)):
            out[at + i] = (bits >> (16 - 8 * i)) & 0xFF
        at += 3
        pos += 4
    return last
