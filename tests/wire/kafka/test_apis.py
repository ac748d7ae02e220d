"""The tables of APIs and error codes against kio's, which are made from Kafka's own definitions."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map

from penstock.wire.kafka import APIS, ErrorCode
from penstock.wire.kafka.apis import response_header_tags

# Kafka marks the last version of these as unstable, and a broker does not advertise it by default.
UNSTABLE = {22: 6}


@pytest.mark.parametrize("key", sorted(APIS))
def test_versions_are_those_of_kafka(key: int) -> None:
    api = APIS[key]
    versions = sorted(schema_name_map[api_key_map[key]])
    highest = versions[-1] - 1 if UNSTABLE.get(key) == versions[-1] else versions[-1]
    assert (api.lowest, api.highest) == (versions[0], highest)
    assert api.name.lower() == api_key_map[key].replace("_", "")


def test_error_codes_are_those_of_kafka() -> None:
    ours = {(code.name, int(code), code.retriable) for code in ErrorCode}
    assert ours == {(code.name.upper(), int(code), code.retriable) for code in KioErrorCode}


def test_only_flexible_answers_have_tags_and_api_versions_never() -> None:
    assert response_header_tags(3, 8) == b""
    assert response_header_tags(3, 9) == b"\0"
    assert {response_header_tags(18, version) for version in range(6)} == {b""}
    assert response_header_tags(999, 0) == b""
