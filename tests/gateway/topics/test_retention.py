"""Topics that Kafka clients make are kept as long as Kafka's own, or longer if their namespace says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.errors import ApiError, ClusterError
from penstock.gateway.ports import NewTopic, TopicConfig
from penstock.gateway.pulsar.topics import PulsarTopics
from penstock.wire.kafka import ErrorCode

FULL = "persistent://public/default/orders"
WEEK_MS = str(7 * 24 * 3600 * 1000)
TIME, SIZE = "retentionTimeInMinutes", "retentionSizeInMB"
OnPulsar = Callable[..., PulsarTopics]


def keeps(fake: Any, minutes: int, mebibytes: int) -> None:
    fake.retention = {TIME: minutes, SIZE: mebibytes}


async def make(topics: PulsarTopics, **configs: str) -> Mapping[str, TopicConfig]:
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    await topics.create(NewTopic(name="orders", partitions=1, configs=wanted))
    return await topics.configs("orders")


def test_a_topic_in_a_namespace_that_keeps_nothing_is_kept_for_a_week(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 0, 0)
    found = asyncio.run(make(topics_on(fake, retention_hours=168)))
    assert fake.policies[FULL, "retention"] == {TIME: 10080, SIZE: -1}
    # Nobody has set it: a tool that copies settings must not take it for one.
    assert found["retention.ms"] == TopicConfig(WEEK_MS, is_set=False)
    assert found["retention.bytes"] == TopicConfig("-1", is_set=False)


@pytest.mark.parametrize(
    ("kept", "hours", "policy"),
    [
        ((60, 512), 168, {TIME: 10080, SIZE: 512}),
        ((10080, -1), 168, None),
        ((-1, -1), 168, None),
        ((0, 0), -1, {TIME: -1, SIZE: -1}),
        ((20000, -1), -1, {TIME: -1, SIZE: -1}),
        ((0, 0), 0, None),
    ],
)
def test_what_is_kept_longer_already_is_left_alone(
    fake: Any,
    topics_on: OnPulsar,
    kept: tuple[int, int],
    hours: int,
    policy: Mapping[str, int] | None,
) -> None:
    keeps(fake, *kept)
    asyncio.run(make(topics_on(fake, retention_hours=hours)))
    assert fake.policies.get((FULL, "retention")) == policy


def test_a_retention_that_the_client_sets_is_the_one(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 0, 0)
    found = asyncio.run(make(topics_on(fake, retention_hours=168), retention_ms="3600000"))
    assert found["retention.ms"] == TopicConfig("3600000", is_set=True)
    assert fake.policies[FULL, "retention"] == {TIME: 60, SIZE: -1}


def test_a_setting_that_is_taken_back_leaves_a_week(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 0, 0)

    async def main() -> None:
        topics = topics_on(fake, retention_hours=168)
        await make(topics)
        await topics.configure("orders", {"retention.ms": "60000"})
        assert fake.policies[FULL, "retention"] == {TIME: 1, SIZE: -1}
        await topics.configure("orders", {"retention.ms": None})
        assert fake.policies[FULL, "retention"] == {TIME: 10080, SIZE: -1}
        assert (await topics.configs("orders"))["retention.ms"] == TopicConfig(WEEK_MS, is_set=False)

    asyncio.run(main())


@pytest.mark.parametrize("setting", ["retention.ms", "retention.bytes"])
def test_a_setting_that_the_topic_was_made_with_leaves_a_week_when_it_is_taken_back(
    fake: Any, topics_on: OnPulsar, setting: str
) -> None:
    keeps(fake, 0, 0)

    async def main() -> None:
        topics = topics_on(fake, retention_hours=168)
        await topics.create(NewTopic(name="orders", partitions=1, configs={setting: "10000000"}))
        assert (await topics.configs("orders"))[setting] == TopicConfig("10000000", is_set=True)
        await topics.configure("orders", {setting: None})
        assert fake.policies[FULL, "retention"] == {TIME: 10080, SIZE: -1}

    asyncio.run(main())


def test_a_setting_without_a_value_is_refused_when_a_topic_is_made(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 0, 0)

    async def main() -> None:
        configs: dict[str, Any] = {"retention.ms": None}
        with pytest.raises(ApiError) as caught:
            await topics_on(fake, retention_hours=168).create(
                NewTopic(name="orders", partitions=1, configs=configs)
            )
        assert caught.value.error_code == ErrorCode.INVALID_CONFIG

    asyncio.run(main())
    assert fake.topics_ == {}


@pytest.mark.parametrize("former", [{TIME: 10080, SIZE: -1}, {TIME: 1, SIZE: 1}])
def test_the_policy_of_a_former_topic_of_the_name_decides_nothing(
    fake: Any, topics_on: OnPulsar, former: Mapping[str, int]
) -> None:
    """Pulsar gives the policies of a topic that was deleted for a moment after it is made again."""
    keeps(fake, 0, 0)
    fake.policies[FULL, "retention"] = former

    async def main() -> None:
        topics = topics_on(fake, retention_hours=168)
        written: dict[str, Any] = {}
        set_policy = fake.set_policy

        async def note(topic: str, name: str, value: Any) -> None:
            written[topic] = value
            await set_policy(topic, name, value)

        fake.set_policy = note
        await make(topics)
        await topics.create(NewTopic(name="other", partitions=1, configs={}))
        assert written == dict.fromkeys((FULL, FULL.replace("orders", "other")), {TIME: 10080, SIZE: -1})

    asyncio.run(main())


def test_what_was_given_counts_before_pulsar_tells_it(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 60, 512)

    async def main() -> None:
        topics = topics_on(fake, retention_hours=168)
        await make(topics)
        fake.policies.clear()  # Pulsar gives the former value of a policy for a moment
        await topics.configure("orders", {"retention.bytes": "1048576"})
        assert fake.policies[FULL, "retention"] == {TIME: 10080, SIZE: 1}

    asyncio.run(main())


def test_a_client_that_goes_away_leaves_a_whole_topic(fake: Any, topics_on: OnPulsar) -> None:
    """Others may write to it from the moment it is there: what they wrote must not be deleted with it."""
    keeps(fake, 0, 0)

    async def main() -> None:
        topics = topics_on(fake, retention_hours=168)
        begun, may_go_on, set_policy = asyncio.Event(), asyncio.Event(), fake.set_policy

        async def slow(topic: str, name: str, value: Any) -> None:
            begun.set()
            await may_go_on.wait()
            await set_policy(topic, name, value)

        fake.set_policy = slow
        creating = asyncio.create_task(make(topics))
        await begun.wait()
        creating.cancel()
        await asyncio.wait([creating])
        may_go_on.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert FULL in fake.topics_
        assert fake.policies[FULL, "retention"] == {TIME: 10080, SIZE: -1}

    asyncio.run(main())


def test_a_retention_that_pulsar_cannot_count_is_without_limit(fake: Any, topics_on: OnPulsar) -> None:
    """Clients write Long.MAX_VALUE for ever; Pulsar counts minutes and MiB in 32 bits, and seconds too."""
    longest = str((1 << 63) - 1)
    made = make(topics_on(fake), retention_ms=longest, retention_bytes=longest)
    found = asyncio.run(made)
    assert fake.policies[FULL, "retention"] == {TIME: -1, SIZE: -1}
    assert found["retention.ms"] == TopicConfig(longest, is_set=True)


@pytest.mark.parametrize(
    ("minutes", "mebibytes", "kept"),
    [
        (35_791_394, (1 << 31) - 1, {TIME: 35_791_394, SIZE: (1 << 31) - 1}),
        (35_791_395, 1 << 31, {TIME: -1, SIZE: -1}),
    ],
)
def test_the_longest_retention_that_pulsar_can_count_is_kept(
    fake: Any, topics_on: OnPulsar, minutes: int, mebibytes: int, kept: dict[str, int]
) -> None:
    configs = {"retention_ms": str(minutes * 60_000), "retention_bytes": str(mebibytes << 20)}
    asyncio.run(make(topics_on(fake), **configs))
    assert fake.policies[FULL, "retention"] == kept


@pytest.mark.parametrize(("configs", "stays"), [({}, True), ({"cleanup_policy": "compact"}, False)])
def test_a_topic_stays_if_nothing_that_was_asked_for_is_missing(
    fake: Any, topics_on: OnPulsar, monkeypatch: pytest.MonkeyPatch, configs: dict[str, str], stays: bool
) -> None:
    """It is there, and others may have written to it; a topic without its settings is another one."""

    async def refuse(*_: object) -> None:
        raise ClusterError("not now")

    monkeypatch.setattr(PulsarTopics, "_new_state", refuse)
    with pytest.raises(ApiError):
        asyncio.run(make(topics_on(fake), **configs))
    assert (FULL in fake.topics_) is stays


def test_a_policy_that_somebody_else_has_set_since_is_told(fake: Any, topics_on: OnPulsar) -> None:
    keeps(fake, 0, 0)

    async def main() -> TopicConfig:
        await make(topics_on(fake, retention_hours=168))
        fake.policies[FULL, "retention"] = {TIME: 5, SIZE: -1}
        return (await topics_on(fake).configs("orders"))["retention.ms"]

    assert asyncio.run(main()) == TopicConfig("300000", is_set=True)


def test_a_role_that_may_not_set_policies_still_makes_topics(
    fake: Any,
    topics_on: OnPulsar,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeps(fake, 0, 0)

    async def refuse(*_: object) -> None:
        raise ClusterError("not allowed")

    monkeypatch.setattr(fake, "set_policy", refuse)
    asyncio.run(make(topics_on(fake, retention_hours=168)))
    assert FULL in fake.topics_
    assert "keeps records only as long as its namespace does" in caplog.text


def test_the_namespace_is_not_asked_about_for_every_topic(
    fake: Any, topics_on: OnPulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    policy = fake.policy

    async def count(topic: str, name: str, *, applied: bool = False) -> Any:
        if applied:
            asked.append(topic)
        return await policy(topic, name, applied=applied)

    monkeypatch.setattr(fake, "policy", count)

    async def main() -> None:
        topics = topics_on(fake, retention_hours=24)
        for number in range(5):
            await topics.create(NewTopic(name=f"t{number}", partitions=1, configs={}))

    asyncio.run(main())
    assert len(asked) == 1
