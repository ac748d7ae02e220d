"""The settings that a broker needs, and the advice for each that it does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.embedded.pulsar import Pulsar
from penstock.errors import ClusterError, PenstockError, Unreachable
from penstock.gateway.startup import WANTED, WANTED_PACKED, check_broker, check_retention, judge

RIGHT = {wanted.setting: wanted.line.partition("=")[2] for wanted in WANTED}


class Broker:
    """An Admin that has some settings, or none to give."""

    def __init__(
        self, settings: Mapping[str, str] | PenstockError, retention: Mapping[str, int] | None = None
    ) -> None:
        self._settings = settings
        self._retention = retention

    async def namespace_retention(self, namespace: str) -> Mapping[str, int] | None:
        return self._retention

    async def broker_settings(self) -> Mapping[str, str]:
        if isinstance(self._settings, PenstockError):
            raise self._settings
        return self._settings


def check(settings: Any) -> list[str]:
    return asyncio.run(check_broker(Broker(settings)))  # type: ignore[arg-type]


def test_the_lines_of_the_advice_are_right() -> None:
    assert judge(RIGHT) == []
    assert check(RIGHT) == []


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.setting)
@pytest.mark.parametrize("value", ["", "something else", None])
def test_each_setting_is_missed(wanted: Any, value: str | None) -> None:
    settings = {name: text for name, text in RIGHT.items() if name != wanted.setting}
    if value is not None:
        settings[wanted.setting] = value
    if wanted.fatal:
        with pytest.raises(ClusterError) as caught:
            check(settings)
        assert wanted.setting in (caught.value.why or "")
        assert wanted.line in (caught.value.next or "")
    else:
        (warning,) = check(settings)
        assert warning.startswith(wanted.setting)
        assert warning.endswith(f"write {wanted.line} into the broker's configuration")


def test_settings_that_may_not_be_read() -> None:
    (warning,) = check(ClusterError("pulsar refused the broker's settings", why="403"))
    assert "cannot be checked" in warning


def test_a_broker_that_does_not_answer() -> None:
    with pytest.raises(Unreachable):
        check(Unreachable("nobody there"))


@pytest.mark.server
def test_the_embedded_pulsar_has_all_of_it(pulsar: Pulsar) -> None:
    from penstock.brokers.pulsar import Admin

    async def ask() -> list[str]:
        async with Admin(pulsar.admin_url) as admin:
            return await check_broker(admin)

    assert asyncio.run(ask()) == []


def check_packed(settings: Mapping[str, str]) -> list[str]:
    return asyncio.run(check_broker(Broker(settings), packed=True))  # type: ignore[arg-type]


def test_packed_offsets_need_no_index() -> None:
    right = {wanted.setting: wanted.line.partition("=")[2] for wanted in WANTED_PACKED}
    assert check_packed(right) == []
    assert "--offsets index" in check_packed(right | RIGHT)[0]
    assert len(check_packed({})) == len(WANTED_PACKED)
    with pytest.raises(ClusterError) as caught:
        check(right)
    assert "--offsets packed" in (caught.value.next or "")


@pytest.mark.parametrize(
    ("value", "fine"), [("50000", True), ("100000", True), ("200000", False), ("x", False)]
)
def test_ledgers_must_not_outgrow_packed_offsets(value: str, fine: bool) -> None:
    found = judge({"managedLedgerMaxEntriesPerLedger": value}, WANTED_PACKED[:1])
    assert (found == []) == fine


@pytest.mark.parametrize(
    ("namespace", "broker", "is_warned"),
    [
        (None, ("0", "0"), True),
        (None, ("-1", "-1"), False),
        ((0, 0), ("-1", "-1"), True),
        ((60, -1), ("0", "0"), False),
    ],
)
def test_a_namespace_that_keeps_nothing_is_warned_of(
    namespace: tuple[int, int] | None, broker: tuple[str, str], is_warned: bool
) -> None:
    names = ("retentionTimeInMinutes", "retentionSizeInMB")
    settings = dict(zip(("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB"), broker, strict=True))
    own = None if namespace is None else dict(zip(names, namespace, strict=True))
    admin: Any = Broker(settings, own)
    found = asyncio.run(check_retention(admin, "acme/shop"))
    assert len(found) == is_warned
    assert all("set-retention acme/shop" in text for text in found)


def test_a_role_that_may_not_see_the_retention_is_not_warned() -> None:
    admin: Any = Broker(ClusterError("denied"))
    assert asyncio.run(check_retention(admin, "acme/shop")) == []
