"""The answers of a rebalance, written by hand, beside kio's: the same bytes in every version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.entities import encode_answer
from penstock.wire.kafka import APIS, ErrorCode
from penstock.wire.kafka.answers.groups import (
    JoinGroupAnswer,
    MemberJoined,
    SyncGroupAnswer,
    encode_join_group,
    encode_sync_group,
)

texts = st.text(max_size=10)
maybe = st.none() | texts
codes = st.sampled_from([0, 22, 25, 27, 79])
int32 = st.integers(-1, 2**31 - 1)
throttles = st.integers(0, 2**31 - 1)


def versions(key: int) -> range:
    return range(APIS[key].lowest, APIS[key].highest + 1)


def as_dict(answer: Any, **more: Any) -> dict[str, Any]:
    given_ = {name: getattr(answer, name) for name in answer.__slots__}
    named = {"throttle_time": given_.pop("throttle_time_ms"), "error_code": ErrorCode(given_["error_code"])}
    return given_ | named | more


@given(
    st.builds(
        JoinGroupAnswer,
        error_code=codes,
        generation_id=int32,
        protocol_type=maybe,
        protocol_name=maybe,
        leader=texts,
        skip_assignment=st.booleans(),
        member_id=texts,
        members=st.lists(
            st.builds(MemberJoined, member_id=texts, instance_id=maybe, metadata=st.binary(max_size=5)),
            max_size=3,
        ).map(tuple),
        throttle_time_ms=throttles,
    )
)
def test_join_group(answer: JoinGroupAnswer) -> None:
    for version in versions(11):
        rows = [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in answer.members
        ]
        name = answer.protocol_name if version >= 7 else answer.protocol_name or ""
        expected = encode_answer(11, version, as_dict(answer, members=rows, protocol_name=name))
        assert encode_join_group(answer, version) == expected, version


@given(
    st.builds(
        SyncGroupAnswer,
        error_code=codes,
        protocol_type=maybe,
        protocol_name=maybe,
        assignment=st.binary(max_size=5),
        throttle_time_ms=throttles,
    )
)
def test_sync_group(answer: SyncGroupAnswer) -> None:
    for version in versions(14):
        assert encode_sync_group(answer, version) == encode_answer(14, version, as_dict(answer)), version
