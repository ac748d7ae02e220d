"""How a job reaches Pulsar: through the gateway of the context, or through one of its own while it runs."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.config import Security
from penstock.contract import ResolvedOperation
from penstock.contract.credentials import Connection
from penstock.contract.places import Place
from penstock.contract.protocols import family_of
from penstock.embedded.gateway import Gateway, RemotePulsar
from penstock.embedded.private import temporary_folder, write_private
from penstock.errors import PipelineError
from penstock.pipeline.assembly import sources_of
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.pulsar import PULSAR, gateway_of, tenant_of
from penstock.pipeline.spark.file_system import is_remote
from penstock.pipeline.spark.startup import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Gateways", "own_gateway"]

_FLAGS: Final = ("--no-auto-create", "--groups-partitions", "1", "--cursor-period", "0.5")
"""Topics are the contract's; a group needs one partition; its cursor moves before a short job has ended."""


class Gateways:
    """The gateways of one job."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._own: list[str] = []

    def reached(self, pipeline: Pipeline) -> Pipeline:
        """Give the pipeline with its Pulsar servers behind gateways; one that is missing is started."""
        found: dict[str, Connection] = {}
        servers = _servers(pipeline)
        for server, (connection, topic) in servers.items():
            known = gateway_of(pipeline.context, tuple(servers))
            if known is None:
                namespace = f"{tenant_of(topic)}/__penstock_{_mark(pipeline.checkpoint, server)}"
                known = self._held.enter_context(own_gateway(connection, namespace))
                self._own.append(server)
            found[server] = known
        return _with(pipeline, found) if found else pipeline

    def require_near(self, spark: SparkSession) -> None:
        """Refuse a cluster whose machines would look for our own gateway on themselves."""
        if self._own and not is_local(str(spark.sparkContext.master)):
            raise PipelineError(
                f"the workers of a cluster cannot reach the gateway of this job to {', '.join(self._own)}",
                next="run penstock gateway where they can reach it, and name it as gateway: in the context",
            )

    def close(self) -> None:
        """End those that were started."""
        self._own.clear()
        self._held.close()


@contextmanager
def own_gateway(pulsar: Connection, namespace: str) -> Iterator[Connection]:
    """Run a gateway before a Pulsar, on a port of this machine that only it can reach.

    It is alone in its namespace for groups: gateways that share one are nodes of one Kafka, and clients of
    the others would be sent to this machine.
    """
    token = pulsar.security.token
    with temporary_folder("penstock-job-") as folder:
        token_file = None if token is None else folder / "token"
        if token is not None and token_file is not None:
            write_private(token_file, token.reveal().encode())
        remote = RemotePulsar(
            service_url=pulsar.address,
            admin_url=pulsar.admin,
            token_file=token_file,
            ca_file=pulsar.security.ca_file,
            cert_file=pulsar.security.cert_file,
            key_file=pulsar.security.key_file,
        )
        with Gateway(remote, options=(*_FLAGS, "--groups-namespace", namespace)) as gateway:
            address = gateway.bootstrap
            if token is None:
                yield Connection(address=address)
            else:
                security = Security(username=namespace.partition("/")[0], token=token)
                yield Connection(address=address, mechanism="PLAIN", security=security)


def _servers(pipeline: Pipeline) -> Mapping[str, tuple[Connection, str]]:
    """Give the Pulsar servers of a pipeline, how to reach each, and one of its topics."""
    found: dict[str, tuple[Connection, str]] = {}
    for source in sources_of(pipeline):
        sends = (operation for route in source.routes for operation in route.send)
        places: tuple[ResolvedOperation | Place, ...] = (
            source.receive,
            *sends,
            *source.dead.values(),
            *source.unknown,
        )
        for place in places:
            if family_of(pipeline.contract.servers[place.server]) == PULSAR:
                found.setdefault(place.server, (place.connection, str(place.topic)))
    return found


def _with(pipeline: Pipeline, connections: Mapping[str, Connection]) -> Pipeline:
    def reached(operation: ResolvedOperation) -> ResolvedOperation:
        return replace(operation, connection=connections.get(operation.server, operation.connection))

    def rerouted(route: CompiledRoute) -> CompiledRoute:
        return replace(route, receive=reached(route.receive), send=tuple(map(reached, route.send)))

    return replace(pipeline, routes=tuple(map(rerouted, pipeline.routes)), gateways=connections)


def _mark(checkpoint: str, server: str) -> str:
    """Give the same for every run of a job, and another for every other job.

    A checkpoint that every machine reaches is the same one on each: a driver may move.
    """
    place = checkpoint if is_remote(checkpoint) else f"{socket.gethostname()}|{Path(checkpoint).absolute()}"
    told = f"{place}|{server}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]
