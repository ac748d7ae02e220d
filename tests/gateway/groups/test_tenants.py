"""Groups of two namespaces with the same names, in the same shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.solo import SoloGroups
from penstock.gateway.groups.tenants import OwnGroups, TenantGroups
from penstock.wire.kafka import ErrorCode

PLACE = ("orders", 0)


def run(scenario: Callable[[SoloGroups], Any]) -> None:
    async def life() -> None:
        groups = SoloGroups(1)
        await scenario(groups)
        groups.close()

    asyncio.run(life())


async def commit(groups: Any, group_id: str, offset: int) -> None:
    errors = await groups.shard(group_id).commit(
        group_id, Identity(), {PLACE: Commit(offset=offset, committed_at=1)}
    )
    assert errors == {PLACE: ErrorCode.NONE}
    # A log that is done at once tells its shard only when the loop comes round.
    await asyncio.sleep(0)


def names(groups: Any) -> list[str]:
    return sorted(group.group_id for shard in groups.shards() for group in shard.list((), ()))


def test_the_same_name_in_two_namespaces_is_two_groups() -> None:
    async def scenario(groups: SoloGroups) -> None:
        acme, beta, own = (
            TenantGroups(groups, "acme/shop"),
            TenantGroups(groups, "beta/shop"),
            OwnGroups(groups),
        )
        for each, offset in ((acme, 1), (beta, 2), (own, 3)):
            await commit(each, "billing", offset)
        await commit(acme, "a/b", 4)
        found = [each.shard("billing").committed("billing")[PLACE].offset for each in (acme, beta, own)]
        assert found == [1, 2, 3]
        assert [names(each) for each in (acme, beta, own)] == [["a/b", "billing"], ["billing"], ["billing"]]
        described = acme.shard("billing").describe("billing")
        assert described is not None and described.group_id == "billing"
        assert await acme.shard("billing").delete("billing") is ErrorCode.NONE
        assert [names(each) for each in (acme, beta, own)] == [["a/b"], ["billing"], ["billing"]]
        assert beta.shard("a/b").describe("a/b") is None

    run(scenario)


@pytest.mark.parametrize("name", ["//acme/shop/billing", "//"])
def test_nobody_reaches_into_a_namespace_by_a_name(name: str) -> None:
    async def scenario(groups: SoloGroups) -> None:
        await commit(TenantGroups(groups, "acme/shop"), "billing", 1)
        own, beta = OwnGroups(groups), TenantGroups(groups, "beta/shop")
        with pytest.raises(ApiError):
            own.shard(name)
        with pytest.raises(ApiError):
            await own.coordinator(name)
        assert beta.shard(name).committed(name) == {}
        assert beta.shard("../../acme/shop/billing").committed("../../acme/shop/billing") == {}

    run(scenario)


def test_no_name_is_no_group() -> None:
    async def scenario(groups: SoloGroups) -> None:
        with pytest.raises(ApiError) as caught:
            TenantGroups(groups, "acme/shop").shard("")
        assert caught.value.error_code == ErrorCode.INVALID_GROUP_ID

    run(scenario)
