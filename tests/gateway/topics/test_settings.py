"""Kafka's topic settings on Pulsar: what is accepted, kept and given back, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.ports import NewTopic, TopicConfig
from penstock.gateway.topic_settings import TOPIC_SETTINGS, check_setting
from penstock.wire.kafka import ErrorCode

FULL = "persistent://public/default/orders"
Made = Callable[..., tuple[Any, Any]]
LONGEST = str((1 << 63) - 1)
LARGE = 64 * 1024 * 1024


def code_of(name: str, value: str | None) -> int:
    try:
        check_setting(name, value)
    except ApiError as exc:
        return exc.error_code
    return 0


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_the_default_of_a_setting_can_be_set_and_taken_back(name: str) -> None:
    assert code_of(name, TOPIC_SETTINGS[name].default) == 0
    assert code_of(name, None) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("segment.bytes", "52428800"),
        ("segment.ms", "600000"),
        ("min.insync.replicas", "2"),
        ("retention.bytes", "1073741824"),
        ("compression.type", "zstd"),
        ("delete.retention.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("unclean.leader.election.enable", "TRUE"),
        ("cleanup.policy", "compact, delete"),
        ("message.format.version", "2.8-IV1"),
        ("max.compaction.lag.ms", LONGEST),
    ],
)
def test_what_promises_nothing_false_is_accepted(name: str, value: str) -> None:
    assert code_of(name, value) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.type", "createtime"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("min.compaction.lag.ms", "60000"),
        ("remote.storage.enable", "true"),
        ("segment.bytes", "x"),
        ("segment.bytes", str(1 << 31)),
        ("segment.bytes", "1.0"),
        ("segment.bytes", "-1"),
        ("segment.bytes", "١٠٠"),
        ("retention.ms", "-2"),
        ("retention.ms", str(1 << 63)),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("compression.type", "brotli"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,compact"),
        ("leader.replication.throttled.replicas", "x" * 5000),
    ],
)
def test_what_cannot_be_or_would_not_hold_is_refused(name: str, value: str) -> None:
    assert code_of(name, value) == ErrorCode.INVALID_CONFIG


@pytest.fixture
def made(fake: Any, topics_on: Any) -> Callable[..., tuple[Any, Any]]:
    """Makes a topic, changes it, and describes it by another gateway."""

    def make(configs: dict[str, str], *changes: dict[str, str | None]) -> tuple[Any, Any]:
        async def scenario() -> Any:
            topics = topics_on(pulsar)
            await topics.create(NewTopic(name="orders", partitions=1, configs=configs))
            for change in changes:
                await topics.configure("orders", change)
            return await topics_on(pulsar).configs("orders")

        pulsar = type(fake)()
        return pulsar, asyncio.run(scenario())

    return make


def test_what_nobody_set_is_a_default(made: Made) -> None:
    _, configs = made({})
    assert not any(config.is_set for config in configs.values())
    assert configs["segment.bytes"] == TopicConfig("1073741824", is_set=False)
    # What holds by the namespace.
    assert configs["retention.ms"] == TopicConfig("259200000", is_set=False)
    assert configs["max.message.bytes"] == TopicConfig("5242880", is_set=False)
    assert "message.format.version" not in configs


def test_settings_are_given_back_as_they_were_set(made: Made) -> None:
    given = {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "CreateTime",
        "segment.bytes": "52428800",
        "retention.ms": "90001",
        "retention.bytes": "1048577",
        "max.message.bytes": "2000000",
        "message.format.version": "2.8-IV1",
    }
    pulsar, configs = made(given)
    found = {name: config for name, config in configs.items() if config.is_set}
    assert found == {name: TopicConfig(value, is_set=True) for name, value in given.items()}
    # Rounded up: nothing goes before its time.
    assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 2, "retentionSizeInMB": 2}
    assert pulsar.policies[FULL, "compactionThreshold"] == 1
    assert pulsar.policies[FULL, "maxMessageSize"] == 2_000_000


def test_one_of_time_and_size_leaves_the_other_as_it_is(made: Made) -> None:
    pulsar, configs = made({"retention.bytes": "1048576"})
    assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 4320, "retentionSizeInMB": 1}
    assert configs["retention.ms"] == TopicConfig("259200000", is_set=False)
    assert configs["retention.bytes"] == TopicConfig("1048576", is_set=True)
    pulsar, configs = made({"retention.bytes": "1048576"}, {"retention.ms": "60000"})
    assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
    pulsar, configs = made({"retention.bytes": "1048576", "retention.ms": "60000"}, {"retention.bytes": None})
    assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
    assert configs["retention.bytes"].is_set is False


def test_a_setting_is_taken_back(made: Made) -> None:
    pulsar, configs = made(
        {"retention.ms": "60000", "segment.ms": "1", "cleanup.policy": "compact"},
        {"retention.ms": None, "segment.ms": None, "cleanup.policy": None, "flush.ms": None},
    )
    assert not pulsar.policies and not any(config.is_set for config in configs.values())
    assert configs["cleanup.policy"].value == "delete"


def test_a_policy_changed_by_pulsars_tools_is_right(fake: Any, topics_on: Any) -> None:
    async def scenario() -> None:
        pulsar = fake
        await topics_on(pulsar).create(
            NewTopic(name="orders", partitions=1, configs={"retention.ms": "60000"})
        )
        pulsar.policies[FULL, "retention"] = {"retentionTimeInMinutes": 3, "retentionSizeInMB": 7}
        topics = topics_on(pulsar)
        configs = await topics.configs("orders")
        assert configs["retention.ms"] == TopicConfig("180000", is_set=True)
        assert configs["retention.bytes"].value == str(7 << 20)
        await topics.configure("orders", {"retention.bytes": "1"})
        assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 3, "retentionSizeInMB": 1}
        # Made by Pulsar's tools alone: whatever stands on the topic was set on it.
        pulsar.topics_[FULL + "2"], pulsar.properties_[FULL + "2"] = 1, {}
        pulsar.policies[FULL + "2", "retention"] = {"retentionTimeInMinutes": 3, "retentionSizeInMB": 7}
        pulsar.policies[FULL + "2", "compactionThreshold"] = 1 << 20
        configs = await topics.configs("orders2")
        assert configs["retention.ms"] == TopicConfig("180000", is_set=True)
        assert configs["cleanup.policy"] == TopicConfig("compact", is_set=True)

    asyncio.run(scenario())


@pytest.mark.parametrize(("threshold", "value"), [(1 << 20, "compact,delete"), (0, "delete")])
def test_any_threshold_of_compaction_is_what_kafka_calls_compact(
    fake: Any, topics_on: Any, threshold: int, value: str
) -> None:
    async def scenario() -> None:
        given = {"cleanup.policy": "compact,delete"}
        await topics_on(fake).create(NewTopic(name="orders", partitions=1, configs=given))
        fake.policies[FULL, "compactionThreshold"] = threshold
        configs = await topics_on(fake).configs("orders")
        assert configs["cleanup.policy"] == TopicConfig(value, is_set=True)

    asyncio.run(scenario())


def test_what_was_written_a_moment_ago_counts_though_pulsar_does_not_show_it_yet(
    fake: Any, topics_on: Any
) -> None:
    async def scenario() -> None:
        pulsar = fake
        topics = topics_on(pulsar)
        await topics.create(NewTopic(name="orders", partitions=1))
        shown = {"retentionTimeInMinutes": 3, "retentionSizeInMB": 3}
        pulsar.policies[FULL, "retention"] = shown

        async def late(topic: str, name: str, *, applied: bool = False) -> Any:
            return shown if name == "retention" else None

        pulsar.policy = late  # type: ignore[method-assign]
        await topics.configure("orders", {"retention.ms": "600000"})
        await topics.configure("orders", {"retention.bytes": "1048576"})
        assert pulsar.policies[FULL, "retention"] == {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1}

    asyncio.run(scenario())


def test_a_topic_that_is_made_again_has_nothing_of_the_former_one(fake: Any, topics_on: Any) -> None:
    async def scenario() -> None:
        topics = topics_on(fake)
        compacted = NewTopic(name="orders", partitions=1, configs={"cleanup.policy": "compact"})
        await topics.create(compacted)
        assert await topics.is_compacted("orders")
        await topics.delete("orders")
        await topics.create(NewTopic(name="orders", partitions=1))
        assert not await topics.is_compacted("orders")
        assert not any(config.is_set for config in (await topics.configs("orders")).values())

    asyncio.run(scenario())


def test_nothing_is_written_if_it_is_only_to_be_checked(fake: Any, topics_on: Any) -> None:
    async def scenario() -> None:
        pulsar = fake
        topics = topics_on(pulsar)
        await topics.create(NewTopic(name="orders", partitions=1))
        before = dict(pulsar.properties_[FULL])
        await topics.configure("orders", {"segment.ms": "1", "retention.ms": "1"}, validate_only=True)
        assert pulsar.properties_[FULL] == before and not pulsar.policies
        with pytest.raises(ApiError):
            await topics.configure("orders", {"segment.ms": "x"}, validate_only=True)

    asyncio.run(scenario())


def test_a_topic_whose_policies_are_refused_is_not_left_behind(fake: Any, topics_on: Any) -> None:
    async def scenario() -> None:
        pulsar = fake
        too_much = {"cleanup.policy": "compact", "max.message.bytes": str(LARGE)}
        with pytest.raises(ApiError) as caught:
            await topics_on(pulsar).create(NewTopic(name="orders", partitions=1, configs=too_much))
        assert caught.value.error_code == ErrorCode.POLICY_VIOLATION
        assert not pulsar.topics_

    asyncio.run(scenario())
