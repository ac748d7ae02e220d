"""The rate of a request: only time in which the gateway reads counts."""

from __future__ import annotations

from penstock.gateway.frame_rate import FrameRate


def test_time_in_which_the_gateway_does_not_read_does_not_count() -> None:
    rate = FrameRate(bytes_per_second=100)
    rate.begin(now=0.0)
    rate.pause(now=1.0)
    rate.resume(now=100.0)
    assert not rate.is_slow(now=101.5, arrived=0, window=3.0)
    assert rate.is_slow(now=102.0, arrived=299, window=3.0)


def test_what_is_paused_is_judged_up_to_the_pause() -> None:
    rate = FrameRate(bytes_per_second=100)
    rate.begin(now=0.0)
    rate.pause(now=4.0)
    assert not rate.is_slow(now=1000.0, arrived=400, window=3.0)


def test_a_request_that_begins_during_a_pause_has_its_time_from_the_end_of_it() -> None:
    rate = FrameRate(bytes_per_second=100)
    rate.begin(now=0.0)
    rate.pause(now=1.0)
    rate.begin(now=50.0)
    rate.resume(now=60.0)
    assert not rate.is_slow(now=62.0, arrived=0, window=3.0)
    assert rate.is_slow(now=63.0, arrived=0, window=3.0)
