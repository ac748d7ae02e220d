"""`penstock gateway`: Kafka clients on a Pulsar cluster, until it is told to stop."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current
from penstock.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar import Host
    from penstock.config import Secret, Server
    from penstock.gateway.entrance import Listener
    from penstock.gateway.process import Options
    from penstock.gateway.security.protocols import SecurityProtocol

__all__ = ["command"]

_DEFAULT_LISTEN: Final = "127.0.0.1:9092"
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})
_DEBUG_VERBOSITY: Final = 2
_NONE: Final = "none"
_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Offsets(StrEnum):
    """What an offset is made of."""

    INDEX = "index"
    PACKED = "packed"


class Undecodable(StrEnum):
    """What becomes of an entry that cannot be decoded."""

    FAIL = "fail"
    PLACEHOLDER = "placeholder"
    SKIP = "skip"


Pulsar = Annotated[
    str | None,
    typer.Option(metavar="URL", help="pulsar:// or pulsar+ssl://; else the Pulsar of the context."),
]
AdminUrl = Annotated[
    str | None, typer.Option("--admin", metavar="URL", help="Admin REST address; guessed from --pulsar.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--pulsar-token-file", metavar="FILE", help="Token; read again when used.")
]
CaFile = Annotated[
    Path | None, typer.Option("--pulsar-ca-file", metavar="FILE", help="Authorities for TLS to Pulsar (PEM).")
]
CertFile = Annotated[
    Path | None,
    typer.Option(
        "--pulsar-cert-file", metavar="FILE", help="Our certificate for mutual TLS to Pulsar (PEM)."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--pulsar-key-file", metavar="FILE", help="Its key (PEM), if it is not in the same file."),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=][PROTOCOL://]HOST:PORT",
        help=f"Listen here ({_DEFAULT_LISTEN}), as plaintext, ssl, sasl_plaintext or sasl_ssl; "
        "may be repeated.",
    ),
]
Advertise = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="What clients are told; one for each --listen, in order."),
]
TlsCertFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificates of listeners with TLS (PEM).")
]
TlsKeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Their key (PEM), if it is not in the same file.")
]
TrustClients = Annotated[
    bool,
    typer.Option("--trust-clients", help="Clients without SASL act with all rights of the gateway's token."),
]
StampIdentity = Annotated[
    bool, typer.Option("--stamp-identity", help="Write who produced a record into its headers.")
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=NUMBER", help="Change a limit; may be repeated."),
]
Namespace = Annotated[
    str, typer.Option("--default-namespace", metavar="TENANT/NS", help="Where short topic names are.")
]
OffsetsOption = Annotated[
    Offsets, typer.Option("--offsets", help="index: the broker's count; packed: the message id.")
]
UndecodableOption = Annotated[
    Undecodable, typer.Option("--undecodable", help="What becomes of entries that cannot be decoded.")
]
AutoCreate = Annotated[
    bool,
    typer.Option("--auto-create/--no-auto-create", help="Make topics that clients ask for and nobody made."),
]
Partitions = Annotated[
    int, typer.Option("--default-partitions", min=1, help="Of topics made without a number of partitions.")
]
RetentionHours = Annotated[
    int,
    typer.Option(
        min=-1,
        help="How long topics made by clients are kept at least; -1 for ever, 0 as their namespace says.",
    ),
]
NodeId = Annotated[
    int | None,
    typer.Option(
        min=0, max=2**31 - 1, help="The id of this node for Kafka clients; else made of its address."
    ),
]
BesideBroker = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Lead what this broker owns, or none; else the brokers of the host that clients are told.",
    ),
]
GroupsNamespace = Annotated[
    str, typer.Option("--groups-namespace", metavar="TENANT/NS", help="Where consumer groups are kept.")
]
GroupsPartitions = Annotated[
    int, typer.Option(min=1, max=1000, help="Partitions of their topic, when it is made.")
]
RebalanceDelay = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long the first rebalance of an empty group waits for more members.",
    ),
]
CursorPeriod = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How often groups become Pulsar cursors; 0 never.")
]
AdoptCursors = Annotated[
    bool, typer.Option("--adopt-cursors", help="Let Pulsar's tools move the offsets of groups.")
]
MetricsListen = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Serve /metrics, /healthz and /readyz here; off if not given."),
]
Apis = Annotated[bool, typer.Option("--apis", help="Print the served APIs and versions, and end.")]


def command(
    pulsar: Pulsar = None,
    admin: AdminUrl = None,
    pulsar_token_file: TokenFile = None,
    pulsar_ca_file: CaFile = None,
    pulsar_cert_file: CertFile = None,
    pulsar_key_file: KeyFile = None,
    listen: Listen = None,
    advertise: Advertise = None,
    tls_cert_file: TlsCertFile = None,
    tls_key_file: TlsKeyFile = None,
    trust_clients: TrustClients = False,
    stamp_identity: StampIdentity = False,
    limit: LimitOption = None,
    default_namespace: Namespace = "public/default",
    offsets: OffsetsOption = Offsets.INDEX,
    undecodable: UndecodableOption = Undecodable.FAIL,
    auto_create: AutoCreate = True,
    default_partitions: Partitions = 1,
    retention_hours: RetentionHours = 168,
    node_id: NodeId = None,
    beside_broker: BesideBroker = None,
    groups_namespace: GroupsNamespace = "public/__kafka",
    groups_partitions: GroupsPartitions = 8,
    rebalance_delay: RebalanceDelay = 3.0,
    cursor_period: CursorPeriod = 5.0,
    adopt_cursors: AdoptCursors = False,
    metrics_listen: MetricsListen = None,
    apis: Apis = False,
) -> None:
    """Serve Kafka clients from Pulsar until SIGTERM or Ctrl-C."""
    if apis:
        return _print_apis()
    output.show_logs(debug=current().verbosity >= _DEBUG_VERBOSITY, times=True)
    from penstock.gateway.groups.group import Limits as GroupLimits
    from penstock.mapping import OnUndecodable

    options = replace(
        _cluster(pulsar, admin, pulsar_token_file, pulsar_ca_file, (pulsar_cert_file, pulsar_key_file)),
        listeners=_listeners(listen or [_DEFAULT_LISTEN], advertise or []),
        tls_certificate=tls_cert_file,
        tls_key=tls_key_file,
        trust_clients=trust_clients,
        stamp_identity=stamp_identity,
        metrics=_metrics_address(metrics_listen),
        default_namespace=_namespace(default_namespace),
        on_undecodable=OnUndecodable(undecodable.value),
        packed=offsets is Offsets.PACKED,
        auto_create=auto_create,
        default_partitions=default_partitions,
        retention_hours=retention_hours,
        node_id=node_id,
        beside=_beside(beside_broker),
        groups_namespace=_namespace(groups_namespace, "--groups-namespace"),
        groups_partitions=groups_partitions,
        group_limits=GroupLimits(initial_delay=rebalance_delay),
        cursor_period=cursor_period,
        adopt_cursors=adopt_cursors,
    )
    _serve(options, limit or [])


def _serve(options: Options, limits: list[str]) -> None:
    from penstock.cli.gateway_limits import limited
    from penstock.gateway.life import run

    _refuse_unused_certificate(options)
    run(limited(options, limits))


def _print_apis() -> None:
    from penstock.gateway.dispatch import advertised
    from penstock.wire.kafka import APIS

    rows = [(APIS[key].name, key, lowest, highest) for key, lowest, highest in advertised()]
    output.rows(("api", "key", "lowest", "highest"), rows, current().output)


# Where Pulsar is


def _cluster(
    pulsar: str | None,
    admin: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    certificate: tuple[Path | None, Path | None],
) -> Options:
    """Take the flags; without an address, the Pulsar of the context, with its credentials."""
    from penstock.gateway.process import Options

    token, (cert_file, key_file) = _token(token_file), certificate
    if pulsar is not None:
        return Options(
            pulsar=pulsar,
            admin=admin,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
        )
    server = _of_context()
    known = server.security
    if cert_file is None:
        cert_file, key_file = known.cert_file, known.key_file
    return Options(
        cert_file=cert_file,
        key_file=key_file,
        key_password=known.key_password,
        pulsar=server.address,
        admin=admin or server.admin,
        token=token or server.security.token,
        ca_file=ca_file or server.security.ca_file,
    )


def _of_context() -> Server:
    context = configuration().context()
    servers = [context.server(name) for name in context.server_names] if context else []
    found = [server for server in servers if server.kind == "pulsar"]
    if len(found) != 1:
        told = "no context is chosen" if context is None else f"context {context.name} has {len(found)}"
        raise UsageError(
            "which Pulsar?",
            why=f"{told}, and no --pulsar",
            next="penstock gateway --pulsar pulsar://host:6650",
        )
    return found[0]


def _token(path: Path | None) -> Secret | None:
    if path is None:
        return None
    from penstock.config import Secret
    from penstock.config.secret import resolve

    def read() -> str:
        return resolve(f"${{file:{path}}}", where="--pulsar-token-file", folder=Path.cwd()).strip()

    read()  # a file that cannot be read is told now, not when the broker asks
    return Secret(read)


def _namespace(text: str, option: str = "--default-namespace") -> str:
    parts = text.split("/")
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"'{text}' is no namespace", next=f"write {option} tenant/namespace")
    return text


# Where we are


def _listeners(listen: list[str], advertise: list[str]) -> tuple[Listener, ...]:
    from penstock.gateway.entrance import Listener, listener_names

    if advertise and len(advertise) != len(listen):
        raise UsageError(
            f"{len(listen)} times --listen, {len(advertise)} times --advertise",
            next="give each --listen its --advertise, in the same order",
        )
    names, bare = zip(*map(_name, listen), strict=True)
    protocols, rest = zip(*map(_protocol, bare), strict=True)
    addresses = [_address(text, "--listen") for text in rest]
    told: list[Host | None] = [_address(text, "--advertise") for text in advertise]
    told = told or [None] * len(addresses)
    for address, to in zip(addresses, told, strict=True):
        if to is None and address.name in _EVERYWHERE:
            raise UsageError(
                f"clients cannot be told {address}: it is every address of this machine",
                next=f"add --advertise HOST:{address.port}, an address that clients reach",
            )
    rows = zip(addresses, told, protocols, names, strict=True)
    found = tuple(
        Listener(address=own, advertised=to, protocol=protocol, name=name) for own, to, protocol, name in rows
    )
    listener_names(found)  # names that cannot be are told now
    return found


def _refuse_unused_certificate(options: Options) -> None:
    """Refuse a certificate that no listener uses: whoever gives one expects TLS."""
    given = options.tls_certificate or options.tls_key
    if given is not None and not any(listener.protocol.has_tls for listener in options.listeners):
        raise UsageError(
            "a certificate is given, and no listener has TLS",
            next="write --listen ssl://HOST:PORT or sasl_ssl://HOST:PORT, or leave the certificate out",
        )


def _name(text: str) -> tuple[str, str]:
    """Cut NAME= off; no name if none is written."""
    name, mark, rest = text.rpartition("=")
    if not mark:
        return "", text
    if _LISTENER_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"'{name}' is no name of a listener",
            where="--listen",
            next="write NAME=PROTOCOL://HOST:PORT, the name of letters, digits, '_', '.' and '-'",
        )
    return name, rest


def _protocol(text: str) -> tuple[SecurityProtocol, str]:
    """Cut the protocol off, plaintext if none is written."""
    from penstock.gateway.security.protocols import SecurityProtocol

    scheme, mark, address = text.rpartition("://")
    try:
        return SecurityProtocol(scheme.lower() if mark else SecurityProtocol.PLAINTEXT), address
    except ValueError:
        raise ConfigError(
            f"'{scheme}' is no protocol of a listener",
            where="--listen",
            next=f"write one of {', '.join(SecurityProtocol)}",
        ) from None


def _metrics_address(text: str | None) -> Host | None:
    """Read [HOST:]PORT; without a host it is the loopback interface."""
    if text is None:
        return None
    return _address(f"127.0.0.1:{text}" if text.isdecimal() else text, "--metrics-listen")


def _beside(text: str | None) -> tuple[Host, ...] | None:
    """Read HOST[:PORT], without a port every broker of the host; `none` is beside no broker."""
    from penstock.brokers.pulsar import Host

    if text is None or text == _NONE:
        return None if text is None else ()
    name, port = _host_and_port(text)
    if not name:
        raise ConfigError(
            f"'{text}' is no broker",
            where="--beside-broker",
            next=f"write --beside-broker HOST, HOST:PORT or {_NONE}",
        )
    return (Host(name, port or 0),)


def _address(text: str, option: str) -> Host:
    from penstock.brokers.pulsar import Host

    name, port = _host_and_port(text)
    if not name or port is None:
        raise ConfigError(f"'{text}' is no address", where=option, next=f"write {option} HOST:PORT")
    return Host(name, port)


def _host_and_port(text: str) -> tuple[str | None, int | None]:
    """Take HOST[:PORT] apart; None for what is not there, and for both if it is something else."""
    try:
        found = urlsplit(f"//{text}")
        is_one = found.netloc == text and "@" not in text
        return (found.hostname, found.port) if is_one else (None, None)
    except ValueError:
        return None, None
