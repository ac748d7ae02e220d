"""Tokens shown to Pulsar: bad logins and a slow Pulsar keep nobody else out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.pulsar.refusal import refusal
from penstock.config.secret import Secret
from penstock.errors import ApiError, Unreachable
from penstock.gateway.security.logins import Crowded, Logins
from penstock.wire.pulsar.pulsar_pb2 import ServerError


class SlowPulsar:
    """Judges tokens when it is let, by their first letter: g(ood), b(ad), a(way)."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.gate = asyncio.Event()
        self.under_way = 0

    async def show(self, token: Secret) -> None:
        text = token.reveal()
        self.shown.append(text)
        self.under_way += 1
        try:
            if not text.startswith("g"):
                await self.gate.wait()
        finally:
            self.under_way -= 1
        if text.startswith("b"):
            raise refusal(ServerError.AUTHENTICATION_ERROR, f"malformed {text}")
        if text.startswith("a"):
            raise Unreachable("away")


def run(scenario: Callable[[SlowPulsar, Logins], Any], **options: Any) -> None:
    async def whole() -> None:
        pulsar = SlowPulsar()
        logins = Logins(pulsar.show, **options)
        await scenario(pulsar, logins)
        await logins.close()
        assert not logins._addresses and not logins._asking

    asyncio.run(whole())


def begin(logins: Logins, text: str, address: str) -> asyncio.Task[None]:
    return asyncio.create_task(logins.verify(Secret(text), address))


async def in_time(work: Any) -> None:
    async with asyncio.timeout(5):
        await work


def test_one_address_cannot_take_all_places() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        bad = [begin(logins, f"bad-{number}", "/10.0.0.1") for number in range(100)]
        await asyncio.sleep(0)
        await in_time(logins.verify(Secret("good"), "/10.0.0.2"))
        assert pulsar.under_way == 8
        pulsar.gate.set()
        found = await asyncio.gather(*bad, return_exceptions=True)
        assert {type(each) for each in found} == {ApiError}
        assert len(pulsar.shown) == 101

    run(scenario)


def test_who_was_here_before_has_places_of_its_own() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        await in_time(logins.verify(Secret("good"), "/10.0.0.2"))
        bad = [begin(logins, f"bad-{number}", f"/10.0.1.{number}") for number in range(100)]
        await asyncio.sleep(0)
        # Shown again, because it is not believed for ever; and not behind the others.
        await in_time(logins.verify(Secret("good"), "/10.0.0.2"))
        assert pulsar.shown.count("good") == 2
        stranger = begin(logins, "good stranger", "/10.0.0.3")
        await asyncio.sleep(0.05)
        assert pulsar.under_way == 32 and not stranger.done()
        pulsar.gate.set()
        await in_time(stranger)
        await asyncio.gather(*bad, return_exceptions=True)

    run(scenario, taken_for=0.0)


def test_a_token_that_was_denied_is_not_shown_again_for_a_while() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        pulsar.gate.set()
        for _ in range(50):
            with pytest.raises(ApiError, match="does not take this token") as caught:
                await logins.verify(Secret("bad-hunter2"), "/10.0.0.1")
            assert "malformed" not in "".join(traceback.format_exception(caught.value))
        assert len(pulsar.shown) == 1
        await asyncio.sleep(0.5)
        with pytest.raises(ApiError):
            await logins.verify(Secret("bad-hunter2"), "/10.0.0.1")
        assert len(pulsar.shown) == 2

    run(scenario, denied_for=0.5)


def test_a_pulsar_that_is_away_has_denied_nobody() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        pulsar.gate.set()
        for _ in range(2):
            with pytest.raises(Unreachable):
                await logins.verify(Secret("away"), "/10.0.0.1")
        assert len(pulsar.shown) == 2

    run(scenario)


def test_logins_with_one_token_share_one_question() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        many = [begin(logins, "away", "/10.0.0.1") for _ in range(40)]
        await asyncio.sleep(0)
        many[0].cancel()
        await asyncio.sleep(0)
        pulsar.gate.set()
        found = await asyncio.gather(*many, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] + [Unreachable] * 39
        assert len(pulsar.shown) == 1

    run(scenario)


def test_a_pulsar_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        with pytest.raises(Unreachable, match="did not judge"):
            await in_time(logins.verify(Secret("away"), "/10.0.0.1"))
        assert pulsar.under_way == 0

    run(scenario, patience=0.1)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.security.logins._REMEMBERED", 10)

    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        pulsar.gate.set()
        for number in range(30):
            await logins.verify(Secret(f"good-{number}"))
            with pytest.raises(ApiError):
                await logins.verify(Secret(f"bad-{number}"))
        assert len(logins._taken) == len(logins._denied) == 10
        await logins.verify(Secret("good-29"))
        assert len(pulsar.shown) == 60

    run(scenario)


def test_a_question_ends_with_the_last_who_waits_for_it() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        gone = [begin(logins, f"bad-{number}", "/10.0.0.1") for number in range(150)]
        await asyncio.sleep(0.01)
        assert pulsar.under_way == 8
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        # One who comes right then asks anew: the former question has no answer any more.
        again = begin(logins, "bad-0", "/10.0.0.1")
        await in_time(logins.verify(Secret("good"), "/10.0.0.1"))
        assert pulsar.under_way == 1 and len(logins._asking) == 1
        pulsar.gate.set()
        with pytest.raises(ApiError, match="does not take"):
            await in_time(again)

    run(scenario)


def test_a_verdict_is_of_one_token_whatever_it_begins_with() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        begins = "g" * 200
        for end in ("", "a", "b", "a"):
            await in_time(logins.verify(Secret(begins + end), "/10.0.0.1"))
        assert pulsar.shown == [begins, begins + "a", begins + "b"]

    run(scenario)


def test_the_logins_of_one_address_that_wait_are_bounded() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        many = [begin(logins, f"bad-{number}", "/10.0.0.1") for number in range(20)]
        await asyncio.sleep(0.01)
        with pytest.raises(Crowded):
            await in_time(logins.verify(Secret("good"), "/10.0.0.1"))
        await in_time(logins.verify(Secret("good"), "/10.0.0.2"))
        pulsar.gate.set()
        await asyncio.gather(*many, return_exceptions=True)
        await in_time(logins.verify(Secret("good too"), "/10.0.0.1"))

    run(scenario, waiting_per_address=20)


def test_waiting_for_a_place_takes_patience_too() -> None:
    async def scenario(pulsar: SlowPulsar, logins: Logins) -> None:
        many = [begin(logins, f"away-{number}", "/10.0.0.1") for number in range(50)]
        found = await asyncio.wait_for(asyncio.gather(*many, return_exceptions=True), 5)
        assert {type(each) for each in found} == {Unreachable}
        # A place that becomes free goes to one whose time is not quite over, on a busy machine to some.
        assert 8 <= len(pulsar.shown) < 25

    run(scenario, patience=0.5)
