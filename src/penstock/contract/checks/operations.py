"""Checks of the rules in `rules.operations`."""

from __future__ import annotations

from itertools import combinations

from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.finding import Report, listed
from penstock.contract.operations import Operation, Reply
from penstock.contract.rules import operations as rules
from penstock.contract.selection import Selector, selector_of

__all__ = ["check_operations"]


def check_operations(contract: Contract, report: Report) -> None:
    """Report messages of other channels, replies that go nowhere, and events that fit two messages."""
    for operation in (*contract.operations.values(), *contract.components.operations.values()):
        _check_messages(operation, report)
        if operation.reply is not None:
            _check_reply(contract, operation.reply, report)
    for name, channel in contract.channels.items():
        _check_selection(name, channel, report)


def _check_messages(operation: Operation, report: Report) -> None:
    for channel, message in operation.messages or ():
        if operation.channel is not None and channel != operation.channel:
            report.add(
                rules.MESSAGE_OF_OTHER_CHANNEL,
                operation.at("messages"),
                message=message,
                other=channel,
                channel=operation.channel,
            )


def _check_reply(contract: Contract, reply: Reply, report: Report) -> None:
    channel = contract.channels.get(reply.channel or "")
    if reply.address is not None and channel is not None and channel.address is not None:
        report.add(rules.REPLY_ADDRESS_TWICE, reply.at("address"), channel=reply.channel)
    for other, message in reply.messages or ():
        if reply.channel is not None and other != reply.channel:
            report.add(
                rules.REPLY_OF_OTHER_CHANNEL,
                reply.at("messages"),
                message=message,
                other=other,
                channel=reply.channel,
            )


def _check_selection(name: str, channel: Channel, report: Report) -> None:
    if len(channel.messages) < 2:
        return
    selectors = {key: selector_of(message) for key, message in channel.messages.items()}
    named = {key: selector for key, selector in selectors.items() if selector != Selector()}
    unnamed = [key for key in selectors if key not in named]
    if unnamed:
        report.add(rules.CANNOT_SELECT, channel.at("messages"), messages=listed(unnamed), channel=name)
    for (key, selector), (other, second) in combinations(named.items(), 2):
        what = selector.overlap(second)
        if what is not None:
            node = channel.messages[other].node
            report.add(rules.SAME_EVENTS, node, message=other, other=key, channel=name, what=what)
