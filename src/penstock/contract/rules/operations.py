"""Rules about operations, their replies and the messages they take."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

MESSAGE_OF_OTHER_CHANNEL = Rule(
    id="PK260",
    severity=Severity.ERROR,
    message="message {message} belongs to channel {other}, the operation uses channel {channel}",
    why="An operation takes a subset of the messages of its own channel.",
    fix="refer to #/channels/{channel}/messages/<message>",
    clause="AsyncAPI 3, Operation Object: messages",
)
REPLY_ADDRESS_TWICE = Rule(
    id="PK261",
    severity=Severity.ERROR,
    message="the reply has an address, and its channel {channel} has one too",
    why="The reply goes where the request says, so the channel must not name another place.",
    fix="set address: null in channel {channel}, or remove reply.address",
    clause="AsyncAPI 3, Operation Reply Object: the channel's address MUST be null or not defined",
)
REPLY_OF_OTHER_CHANNEL = Rule(
    id="PK262",
    severity=Severity.ERROR,
    message="reply message {message} belongs to channel {other}, the reply uses channel {channel}",
    why="A reply takes a subset of the messages of its own channel.",
    fix="refer to #/channels/{channel}/messages/<message>",
    clause="AsyncAPI 3, Operation Reply Object: messages",
)
SAME_EVENTS = Rule(
    id="PK265",
    severity=Severity.ERROR,
    message="messages {message} and {other} of channel {channel} both take {what}",
    why="An event must fit one message and only one, or its schema is a matter of luck.",
    fix="give them different types (const of ce_type in headers, or x-penstock-type) or ce_dataschema",
    clause="AsyncAPI 3, Channel Object: messages",
)
CANNOT_SELECT = Rule(
    id="PK266",
    severity=Severity.WARNING,
    message="nothing but the name tells {messages} of channel {channel} from the others",
    why="With several messages in a channel, each needs a type of event that selects it.",
    fix="add a const of ce_type to each headers schema, or x-penstock-type",
    clause="AsyncAPI 3, Channel Object: messages",
)

RULES = (MESSAGE_OF_OTHER_CHANNEL, REPLY_ADDRESS_TWICE, REPLY_OF_OTHER_CHANNEL, SAME_EVENTS, CANNOT_SELECT)
