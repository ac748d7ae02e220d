"""The place that a person names: a channel or operation of the contract, or a topic on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.planning import contract_path
from penstock.cli.settings import configuration
from penstock.errors import MissingExtra, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar import Options, PulsarClient
    from penstock.contract import Contract
    from penstock.contract.credentials import Connection
    from penstock.contract.places import Place

__all__ = ["PlaceName", "ServerName", "find_place", "kafka_options", "mode_of", "pulsar_client"]

PlaceName = Annotated[str, typer.Argument(help="A channel or operation of the contract, or a topic.")]
ServerName = Annotated[
    str | None, typer.Option("--server", metavar="NAME", help="The server, if there are several.")
]


def find_place(name: str, server: str | None) -> tuple[Place, Contract | None]:
    """Find what is meant; the contract comes along if it names it."""
    from penstock.contract import load
    from penstock.contract.places import place_of, topic_place

    config = configuration()
    context = config.context()
    try:
        contract = load(contract_path(config))
    except MissingExtra:
        raise
    except UsageError:
        contract = None  # a topic can be named without a contract
    if contract is not None and (name in contract.channels or name in contract.operations):
        return place_of(contract, name, server=server, context=context), contract
    if context is None:
        raise UsageError(
            f"'{name}' is no channel or operation, and there is no context",
            next="penstock dev up, or write a context into penstock.yaml",
        )
    return topic_place(name, server, context), None


def mode_of(name: str, contract: Contract | None) -> str:
    """Give the content mode that the contract declares for a place; binary if it does not say."""
    from penstock.contract import resolve

    if contract is None:
        return "binary"
    operations = [key for key, each in contract.operations.items() if name in (key, each.channel)]
    modes = []
    for key in operations:
        try:
            modes += [message.mode for message in resolve(contract, key).messages if message.mode]
        except PenstockError:
            continue  # an operation on several servers says nothing here
    return modes[0] if modes and len(set(modes)) == 1 else "binary"


def kafka_options(connection: Connection) -> dict[str, str]:
    """Give what a librdkafka client must be told."""
    from penstock.contract.credentials import Client, options, reveal

    return reveal(options(connection, Client.CONFLUENT_KAFKA))


def pulsar_client(connection: Connection, options: Options | None = None) -> PulsarClient:
    """Make a client of a Pulsar cluster."""
    from penstock.brokers.pulsar import PulsarClient
    from penstock.brokers.tls import tls_context

    security = connection.security
    files = {name: getattr(security, name) for name in ("ca_file", "cert_file", "key_file")}
    tls = tls_context(
        **{name: None if path is None else str(path) for name, path in files.items()},
        key_password=security.key_password.reveal() if security.key_password else None,
    )
    return PulsarClient(
        connection.address,
        token=security.token,
        tls=tls,
        options=options,
        by_certificate=security.cert_file is not None,
    )
