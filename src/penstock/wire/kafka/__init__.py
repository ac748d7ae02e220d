"""The Kafka protocol as bytes: frames, requests, answers, record batch v2, error codes.

| module          | what is in it                                                                    |
|-----------------|----------------------------------------------------------------------------------|
| apis            | `APIS`: key, name, versions of Kafka 4.3.1, first flexible version               |
| error_codes     | `ErrorCode`: name, code, retriable                                               |
| requests        | `decode_request_header`, `decode_request` (bodies by kio, lengths checked)       |
| produce_request | `decode_produce`: records as views into the frame, not copied                    |
| fetch_request   | `decode_fetch`: the other hot request, read by hand                              |
| cursor          | how these two read a body                                                        |
| guard           | the check of all lengths of a body, which kio needs                              |
| responses       | `response_frame`, `response_pieces` (no copy), `encode_body` (rare ones, by kio) |
| answers         | encoders of the hot answers, one module each                                     |
| record_batch    | `read_batches`, `RecordBatch.check` and `.records`, `write_batch_head`           |
| batch_body      | `BatchBody`, `framed`: records before and after they get a head                  |
| compression     | none, gzip, snappy, lz4, zstd, inflated to a limit                               |
| primitives      | classic and compact strings, lengths and tags                                    |

Frames are cut by `penstock.wire.framing.FrameBuffer`. Bytes that break the protocol raise WireError,
records that cannot be taken raise RecordsError with the error code for the client.

The names here are loaded when they are asked for: some modules come with compiled kernels, and who only
needs an error code does not wait for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.wire.kafka.apis import APIS, Api
    from penstock.wire.kafka.compression import Compression
    from penstock.wire.kafka.error_codes import ErrorCode
    from penstock.wire.kafka.fetch_request import FetchRequest, decode_fetch
    from penstock.wire.kafka.produce_request import ProduceRequest, decode_produce
    from penstock.wire.kafka.record_batch import RecordBatch, read_batches, write_batch_head
    from penstock.wire.kafka.requests import RequestHeader, decode_request, decode_request_header
    from penstock.wire.kafka.responses import encode_body, response_frame, response_pieces

__all__ = [
    "APIS",
    "Api",
    "Compression",
    "ErrorCode",
    "FetchRequest",
    "ProduceRequest",
    "RecordBatch",
    "RequestHeader",
    "decode_fetch",
    "decode_produce",
    "decode_request",
    "decode_request_header",
    "encode_body",
    "read_batches",
    "response_frame",
    "response_pieces",
    "write_batch_head",
]

_MODULES = {
    "APIS": "apis",
    "Api": "apis",
    "Compression": "compression",
    "ErrorCode": "error_codes",
    "FetchRequest": "fetch_request",
    "ProduceRequest": "produce_request",
    "RecordBatch": "record_batch",
    "RequestHeader": "requests",
    "decode_fetch": "fetch_request",
    "decode_produce": "produce_request",
    "decode_request": "requests",
    "decode_request_header": "requests",
    "encode_body": "responses",
    "read_batches": "record_batch",
    "response_frame": "responses",
    "response_pieces": "responses",
    "write_batch_head": "record_batch",
}


def __getattr__(name: str) -> object:
    """Load a name of `__all__` from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
