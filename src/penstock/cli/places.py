"""The place that a person names: a channel or operation of the contract, or a topic on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.planning import contract_path
from penstock.cli.settings import configuration
from penstock.errors import MissingExtra, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar import PulsarClient
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


def pulsar_client(connection: Connection) -> PulsarClient:
    """Make a client of a Pulsar cluster."""
    import ssl

    from penstock.brokers.pulsar import PulsarClient

    security = connection.security
    tls = None
    if connection.tls or connection.address.startswith("pulsar+ssl"):
        tls = ssl.create_default_context(cafile=str(security.ca_file) if security.ca_file else None)
        if security.cert_file is not None:
            password = security.key_password.reveal() if security.key_password else None
            tls.load_cert_chain(security.cert_file, security.key_file, password)
    return PulsarClient(connection.address, token=security.token, tls=tls)
