"""The profile of events on Pulsar: what a channel says, what its messages declare, or that of spec 002."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.contract import resolve, validate
from penstock.contract.profiles import profile_of

_NEW = {"ce_type": {"const": "a"}, "ce_id": {"type": "string"}}
_OLD = {"CE-EventType": {"const": "b"}, "CE-EventID": {"type": "string"}}


def checked(folder: Path, messages: list[dict[str, Any]], profile: str | None = None) -> Any:
    binding = {"namespace": "shop", "persistence": "persistent", "bindingVersion": "0.1.0"}
    said = {} if profile is None else {"x-penstock-profile": profile}
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1.0.0"},
        "servers": {"pulsar": {"host": "p:6650", "protocol": "pulsar"}},
        "channels": {
            "c": {
                "address": "c",
                "messages": {
                    f"m{number}": {"headers": {"type": "object", "properties": each}}
                    for number, each in enumerate(messages)
                },
                "bindings": {"pulsar": {**binding, **said}},
            }
        },
        "operations": {"o": {"action": "send", "channel": {"$ref": "#/channels/c"}}},
    }
    (folder / "asyncapi.yaml").write_text(json.dumps(document), encoding="utf-8")
    return validate(folder / "asyncapi.yaml")


@pytest.mark.parametrize(
    ("messages", "said", "profile"),
    [
        ([], None, "0.1"),
        ([_NEW], None, "1.0"),
        ([_OLD], None, "0.1"),
        ([_NEW, _OLD], None, "0.1"),
        ([_NEW], "0.1", "0.1"),
        ([], "1.0", "1.0"),
    ],
)
def test_the_profile_of_a_channel(
    tmp_path: Path, messages: list[dict[str, Any]], said: str | None, profile: str
) -> None:
    contract = checked(tmp_path, messages, said).contract
    assert contract is not None
    assert profile_of(contract.channels["c"]) == profile


def test_another_profile_is_a_finding(tmp_path: Path) -> None:
    (found,) = checked(tmp_path, [], "0.2").errors
    assert "0.2" in found.message


def test_messages_in_the_names_of_0_1_are_events_with_a_type(tmp_path: Path) -> None:
    contract = checked(tmp_path, [_NEW, _OLD]).contract
    assert contract is not None
    operation = resolve(contract, "o")
    assert [message.cloud_event for message in operation.messages] == [True, True]
    assert [message.selector.types for message in operation.messages] == [("a",), ("b",)]
