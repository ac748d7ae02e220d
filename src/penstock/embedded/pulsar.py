"""Pulsar 4.2.4 standalone as a child process: broker, bookie and metadata in one, on loopback.

`secured=True` serves TLS only, asks for a token and decides by roles: `token("admin")` may do everything,
a token of any other role only what it was granted. `durable=False` leaves out the sync of the journal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import ssl
import sys
import urllib.request
from pathlib import Path

from penstock.embedded.artifacts import classpath
from penstock.embedded.certificates import make_certificates
from penstock.embedded.java import Java
from penstock.embedded.log4j2 import write_log4j2
from penstock.embedded.ports import LOOPBACK, ask, choose_port
from penstock.embedded.private import write_private
from penstock.embedded.server import Server

__all__ = ["PULSAR_VERSION", "Pulsar"]

PULSAR_VERSION = "4.2.4"

_INTERCEPTORS = "org.apache.pulsar.common.intercept"
_SETTINGS = {
    "clusterName": "standalone",
    "bindAddress": LOOPBACK,
    "advertisedAddress": LOOPBACK,
    # Without it the bookie listens on every interface.
    "listeningInterface": "lo0" if sys.platform == "darwin" else "lo",
    # Without it --bookkeeper-port is not heard.
    "allowEphemeralPorts": "true",
    "loadBalancerEnabled": "false",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # Continuous offsets for Kafka clients come from the broker-entry index.
    "brokerEntryMetadataInterceptors": f"{_INTERCEPTORS}.AppendIndexMetadataInterceptor,"
    f"{_INTERCEPTORS}.AppendBrokerTimestampMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerDeduplicationEnabled": "true",
    # A cursor inside a batch: what a Kafka group commits is a record, not an entry.
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # A topic that nobody reads right now is still a topic, and keeps what it holds.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    # One full-size entry must fit the bookie's frame, or it makes ledgers without end.
    "nettyMaxFrameSizeBytes": "5253120",
    # Sizes for one developer's machine.
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "numOrderedExecutorThreads": "2",
    "numExecutorThreadPoolSize": "2",
    "numCacheExecutorThreadPoolSize": "1",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "8388608",
    "managedLedgerCacheSizeMB": "32",
}


class Pulsar(Server):
    """A real Pulsar.

    with Pulsar() as pulsar:
        print(pulsar.service_url, pulsar.admin_url)
    """

    name = "pulsar"
    # It makes a URI of the path of its metadata, without escapes.
    unfit_in_path = r"[^A-Za-z0-9_/.+~@-]"

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        port: int = 0,
        http_port: int = 0,
        heap_mb: int = 256,
        direct_mb: int = 192,
        durable: bool = True,
        secured: bool = False,
        mutual_tls: bool = False,
        transactions: bool = False,
        settings: dict[str, str] | None = None,
        full_jit: bool = False,
        start_timeout: float = 180.0,
    ) -> None:
        super().__init__(
            data=data,
            wipe=wipe,
            ports={"port": port, "http-port": http_port},
            heap_mb=heap_mb,
            full_jit=full_jit,
            start_timeout=start_timeout,
        )
        self.secured = secured or mutual_tls
        self._mutual_tls = mutual_tls
        self._direct_mb = direct_mb
        self._settings = settings or {}
        self._options = {
            "journalSyncData": str(durable).lower(),
            "transactionCoordinatorEnabled": str(transactions).lower(),
        }

    @property
    def service_url(self) -> str:
        """The address for clients of the binary protocol."""
        return f"pulsar{'+ssl' if self.secured else ''}://{LOOPBACK}:{self.port('port')}"

    @property
    def admin_url(self) -> str:
        """The address of the admin REST API."""
        return f"http{'s' if self.secured else ''}://{LOOPBACK}:{self.port('http-port')}"

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find it."""
        return {"service": self.service_url, "admin": self.admin_url}

    @property
    def ca_file(self) -> Path:
        """The authority that signed the certificate of a secured server."""
        return self.data / "conf" / "ca.pem"

    def client_certificate(self, role: str = "admin") -> tuple[Path, Path]:
        """Give certificate and key of a role, for a server with mutual TLS."""
        return make_certificates(self.data / "conf").of_client(role)

    def token(self, role: str = "admin", *, expires_at: int | None = None) -> str:
        """Sign a token for a role of a secured server (JWT, HS256) that ends at a second, or never."""
        claims = {"sub": role} | ({} if expires_at is None else {"exp": expires_at})
        head, body = (_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims))
        signed = hmac.new(self._secret(), f"{head}.{body}".encode(), hashlib.sha256).digest()
        return f"{head}.{body}.{_base64url(signed)}"

    # Starting

    def _command(self, java: Java) -> list[str]:
        bookie = self._bookie_port()
        store = self.data / "data"
        jars = classpath("pulsar")
        settings = (
            _SETTINGS | self._options | (self._security() if self.secured else self._open()) | self._settings
        )
        conf = self.data / "conf" / "standalone.conf"
        write_private(conf, "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
        return [
            write_log4j2(self.data / "conf" / "log4j2.xml", self.log),
            f"-XX:MaxDirectMemorySize={self._direct_mb}m",
            *["-Dio.netty.leakDetectionLevel=disabled", "-Dpulsar.allocator.exit_on_oom=true"],
            *["-cp", jars, "org.apache.pulsar.PulsarStandaloneStarter"],
            *["--config", str(conf), "-nfw", "-nss", "--bookkeeper-port", str(bookie)],
            *["--bookkeeper-dir", str(store / "bookkeeper"), "--metadata-dir", str(store / "metadata")],
        ]

    def _bookie_port(self) -> int:
        """A bookie is known by its address: its port is in its cookie and stays with the data."""
        cookie = self.data / "data" / "bookkeeper" / "current" / "VERSION"
        said = cookie.read_bytes() if cookie.exists() else b""
        found = re.search(rb'bookieHost: "[^"]*:([0-9]{1,5})"', said)
        remedy = "start with wipe: the data belongs to a bookie on this port"
        return choose_port(int(found[1]) if found else 0, setting="pulsar bookie port", remedy=remedy)

    def _open(self) -> dict[str, str]:
        return {"brokerServicePort": str(self.port("port")), "webServicePort": str(self.port("http-port"))}

    def _security(self) -> dict[str, str]:
        files = make_certificates(self.data / "conf")
        client = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        secret, token = self.data / "conf" / "token.key", self.data / "conf" / "admin.token"
        # By file: Pulsar writes all its settings into its log.
        write_private(token, self.token().encode())
        return {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": str(self.port("port")),
            "webServicePortTls": str(self.port("http-port")),
            "tlsCertificateFilePath": str(files.certificate),
            "tlsKeyFilePath": str(files.key),
            "tlsTrustCertsFilePath": str(files.authority),
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": secret.as_uri(),
            "authorizationEnabled": "true",
            "superUserRoles": "admin",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(files.authority),
            "brokerClientAuthenticationPlugin": client,
            "brokerClientAuthenticationParameters": token.as_uri(),
        } | (self._client_certificates() if self._mutual_tls else {})

    def _client_certificates(self) -> dict[str, str]:
        """Refuse connections without a certificate, whose name is a role; tokens are taken beside it."""
        certificate, key = self.client_certificate()
        provider = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
        return {
            "tlsRequireTrustedClientCertOnConnect": "true",
            "authenticationProviders": f"{provider}Tls,{provider}Token",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationTls",
            "brokerClientAuthenticationParameters": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
        }

    def _secret(self) -> bytes:
        path = self.data / "conf" / "token.key"
        if not path.exists():
            write_private(path, secrets.token_bytes(32))
        return path.read_bytes()

    def _is_ready(self) -> bool:
        return self._get("brokers/health") is not None and "public/default" in (
            self._get("namespaces/public") or ""
        )

    def _get(self, path: str) -> str | None:
        request = urllib.request.Request(f"{self.admin_url}/admin/v2/{path}")
        context = None
        if self.secured:
            request.add_header("Authorization", f"Bearer {self.token()}")
            context = ssl.create_default_context(cafile=str(self.ca_file))
            if self._mutual_tls:
                context.load_cert_chain(*self.client_certificate())
        return ask(request, context)


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
