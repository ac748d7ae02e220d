"""Kafka 4.3.1 as a child process: one node, broker and controller (KRaft), on loopback.

`secured=True` serves SASL_SSL with SCRAM-SHA-512 and an authorizer: `admin` may do everything, `guest`
can log in and may do nothing. `joins=` makes a second broker of a Kafka that runs and is not secured: leaders
can move then.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from penstock.config import Child, child_environment
from penstock.embedded.artifacts import classpath
from penstock.embedded.certificates import make_certificates
from penstock.embedded.home import penstock_home
from penstock.embedded.java import Java, find_java
from penstock.embedded.log4j2 import write_log4j2
from penstock.embedded.ports import LOOPBACK
from penstock.embedded.private import write_private
from penstock.embedded.process import size_of
from penstock.embedded.server import Server, write_arguments
from penstock.errors import StartupError

__all__ = ["KAFKA_VERSION", "Kafka"]

KAFKA_VERSION = "4.3.1"
_MECHANISM = "SCRAM-SHA-512"
_USERS = ("admin", "guest")
_FORMAT_TIMEOUT = 120.0

_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    # One node: every internal topic has one replica and one partition.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Nobody waits for more members to join on a developer's machine.
    "group.initial.rebalance.delay.ms": "0",
    # After a crash the controller lets the broker in again when its old session has run out.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    # The default buffer of 128 MB is most of a small heap.
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class Kafka(Server):
    """A real Kafka.

    with Kafka() as kafka:
        print(kafka.bootstrap)
    """

    name = "kafka"
    # A comma parts two folders, a backslash is an escape.
    unfit_in_path = r"[^ -~]|[,\\]"

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        port: int = 0,
        heap_mb: int = 256,
        secured: bool = False,
        settings: dict[str, str] | None = None,
        joins: Kafka | None = None,
        full_jit: bool = False,
        start_timeout: float = 120.0,
    ) -> None:
        super().__init__(
            data=data,
            wipe=wipe,
            ports={"port": port} | ({} if joins else {"controller-port": 0}),
            heap_mb=heap_mb,
            full_jit=full_jit,
            start_timeout=start_timeout,
        )
        self.secured = secured
        self._settings = settings or {}
        self._first = joins or self

    @property
    def bootstrap(self) -> str:
        """The address for clients: host:port."""
        return f"{LOOPBACK}:{self.port('port')}"

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find it."""
        return {"bootstrap": self.bootstrap}

    @property
    def ca_file(self) -> Path:
        """The authority that signed the certificate of a secured server."""
        return self.data / "conf" / "ca.pem"

    def password(self, user: str = "admin") -> str:
        """Give the password of a user of a secured server."""
        return str(self._passwords()[user])

    def client_options(self, user: str = "admin") -> dict[str, str]:
        """Give what a librdkafka client must be told to connect."""
        options = {"bootstrap.servers": self.bootstrap}
        if self.secured:
            options |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": _MECHANISM,
                "sasl.username": user,
                "sasl.password": self.password(user),
                "ssl.ca.location": str(self.ca_file),
            }
        return options

    # Starting

    def _start_once(self) -> None:
        # No client knows the controller's port: it need not be the same in the next life.
        self._ports.pop("controller-port", None)
        super()._start_once()

    def _command(self, java: Java) -> list[str]:
        jars = classpath("kafka")
        properties = self._write_properties()
        self._format(jars, properties)
        logs = write_log4j2(self.data / "conf" / "log4j2.xml", self.log)
        return [logs, "-cp", jars, "kafka.Kafka", str(properties)]

    def _is_ready(self) -> bool:
        # Kafka logs this line when the broker is unfenced and answers clients.
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start if size_of(self.log) >= self._log_start else 0)
                return b"Kafka Server started" in log.read()
        except FileNotFoundError:
            return False

    def _write_properties(self) -> Path:
        protocol = "SASL_SSL" if self.secured else "PLAINTEXT"
        controller = f"{LOOPBACK}:{self._first.port('controller-port')}"
        alone = self._first is self
        settings = _SETTINGS | {
            "process.roles": "broker,controller" if alone else "broker",
            "node.id": "1" if alone else "2",
            # A static voter: a node that comes back on another port is still itself.
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{protocol}://{self.bootstrap}" + (f",CONTROLLER://{controller}" if alone else ""),
            "advertised.listeners": f"{protocol}://{self.bootstrap}",
            "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": protocol,
            "log.dirs": str(self.data / "data"),
        }
        if self.secured:
            settings |= self._security()
        path = self.data / "conf" / "server.properties"
        lines = (f"{name}={value}\n" for name, value in (settings | self._settings).items())
        write_private(path, "".join(lines).encode())
        return path

    def _security(self) -> dict[str, str]:
        certificates = make_certificates(self.data / "conf")
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.chain),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority),
            "sasl.enabled.mechanisms": _MECHANISM,
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": (
                f'{login} username="admin" password="{self.password()}";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The controller's listener knows no users; it is on loopback and nobody else is told its port.
            "super.users": "User:admin;User:ANONYMOUS",
        }

    def _passwords(self) -> dict[str, str]:
        path = self.data / "conf" / "passwords.json"
        if not path.exists():
            made = json.dumps({user: secrets.token_urlsafe(18) for user in _USERS})
            write_private(path, made.encode())
        try:
            return {user: str(json.loads(path.read_bytes())[user]) for user in _USERS}
        except (ValueError, KeyError, TypeError) as exc:
            raise StartupError(
                "the passwords of this Kafka cannot be read",
                where=str(path),
                next="start with wipe: without them nobody can log in to what the folder holds",
            ) from exc

    # Formatting the data folder

    def _format(self, jars: str, properties: Path) -> None:
        if (self.data / "data" / "meta.properties").exists():
            return
        if self.secured:
            users = [f"{_MECHANISM}=[name={user},password={self.password(user)}]" for user in _USERS]
            _storage_tool(jars, properties, [part for user in users for part in ("--add-scram", user)])
        elif self._first is not self:
            self._write_meta("2", _cluster_id(self._first.data / "data" / "meta.properties"))
        else:
            self._format_from_template(jars, properties)

    def _format_from_template(self, jars: str, properties: Path) -> None:
        """Formatting takes a Java of its own; all but the ids is the same each time, so keep it."""
        template = penstock_home() / "kafka" / KAFKA_VERSION / "bootstrap.checkpoint"
        if not template.exists():
            _storage_tool(jars, properties, [])
            template.parent.mkdir(parents=True, exist_ok=True)
            fresh = template.with_suffix(f".{uuid.uuid4().hex}")
            shutil.copy(self.data / "data" / "bootstrap.checkpoint", fresh)
            fresh.replace(template)
            return
        shutil.copy(template, self.data / "data" / "bootstrap.checkpoint")
        self._write_meta("1", _kafka_uuid())

    def _write_meta(self, node: str, cluster: str) -> None:
        meta = f"version=1\nnode.id={node}\ncluster.id={cluster}\ndirectory.id={_kafka_uuid()}\n"
        (self.data / "data" / "meta.properties").write_text(meta, encoding="utf-8")


def _cluster_id(meta: Path) -> str:
    lines = meta.read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines)["cluster.id"]


def _kafka_uuid() -> str:
    """16 random bytes in url-safe base64 without padding; Kafka refuses one that begins with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _storage_tool(jars: str, properties: Path, more: list[str]) -> None:
    arguments = ["-XX:TieredStopAtLevel=1", "-cp", jars, "kafka.tools.StorageTool", "format"]
    arguments += ["-t", _kafka_uuid(), "-c", str(properties), *more]
    with tempfile.TemporaryDirectory(prefix="penstock-format-") as folder:
        file = Path(folder) / "format.args"
        write_arguments(file, arguments)
        try:
            done = subprocess.run(
                [str(find_java().executable), f"@{file}"],
                capture_output=True,
                text=True,
                timeout=_FORMAT_TIMEOUT,
                check=False,
                env=child_environment(Child.SERVER),
            )
        except subprocess.TimeoutExpired as exc:
            raise StartupError(
                f"Kafka's data folder was not formatted within {_FORMAT_TIMEOUT:.0f} s",
                where=str(properties),
                next="try again when the machine is less busy",
            ) from exc
    if done.returncode:
        raise StartupError(
            "Kafka's data folder could not be formatted",
            where=str(properties),
            why=(done.stderr or done.stdout).strip()[-1500:],
            next="remove the folder, or start with wipe",
        )
