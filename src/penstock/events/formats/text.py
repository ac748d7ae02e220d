"""Data that is characters: its way between a string in an event format and the bytes of the data."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.events.media import charset, is_text

__all__ = ["decode_text", "encode_text"]

_CODECS: Mapping[str, str] = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "iso-8859-1": "latin-1",
}
"""The charsets that we write; each is exact in both directions."""


def decode_text(raw: bytes, media_type: str | None) -> str | None:
    """Give bytes of a text type as a string; None if they must be carried as bytes."""
    codec = _CODECS.get(charset(media_type)) if media_type is not None and is_text(media_type) else None
    if codec is None:
        return None
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        return None


def encode_text(text: str, media_type: str) -> bytes:
    """Give the bytes of a string in the charset of its media type; ValueError if it has none that fits."""
    codec = _CODECS.get(charset(media_type))
    if codec is None:
        raise ValueError(f"the charset {charset(media_type)[:40]} of datacontenttype is not known here")
    return text.encode(codec)
