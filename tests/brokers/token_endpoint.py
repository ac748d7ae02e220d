"""An OAuth token endpoint on loopback that does what a test wants, and a Kafka that takes its tokens."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from penstock.embedded.kafka import Kafka

__all__ = ["CLIENT", "SCOPE", "SECRET", "OAuthKafka", "TokenEndpoint", "jwt", "serving"]

CLIENT, SECRET, SCOPE = "app", "hunter2-of-the-client", "kafka"
Chunks = Iterator[bytes]


def jwt(**claims: Any) -> str:
    """Write a token without a signature, which Kafka's validator for tests takes."""
    parts = ({"alg": "none"}, {"sub": CLIENT, "iat": time.time(), "scope": SCOPE, **claims})
    written = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{'.'.join(written)}."


@dataclass
class TokenEndpoint:
    """Gives tokens to the client that has the secret; `answer` takes its place."""

    url: str = ""
    secret: str = SECRET
    lifetime: float = 3600.0
    claims: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, Mapping[str, list[str]]]] = field(default_factory=list)
    """Path and form of each."""
    issued: list[str] = field(default_factory=list)
    answer: Callable[[], tuple[int, dict[str, str], bytes | Chunks]] | None = None

    def answers(self, status: int, value: Any, **headers: str) -> None:
        """Answer the same from now on; a value that is not bytes is written as JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answer = lambda: (status, headers, body)

    def respond(self, path: str, authorization: str, form: str) -> tuple[int, dict[str, str], bytes | Chunks]:
        self.requests.append((path, parse_qs(form)))
        if self.answer is not None:
            return self.answer()
        wanted = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        if authorization != f"Basic {wanted}":
            return (
                401,
                {},
                json.dumps({"error": "invalid_client", "error_description": authorization}).encode(),
            )
        token = jwt(exp=time.time() + self.lifetime, jti=len(self.issued), **self.claims)
        self.issued.append(token)
        body = {"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime)}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@contextmanager
def serving() -> Iterator[TokenEndpoint]:
    """Serve on a port of its own."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, headers, body = endpoint.respond(self.path, self.headers.get("Authorization", ""), form)
            self.send_response(status)
            size = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
            for name, value in {**headers, **size}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for chunk in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(chunk)
                    self.wfile.flush()
            except OSError:
                pass  # the client has heard enough

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_port}/token"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class OAuthKafka(Kafka):
    """A Kafka whose one listener wants OAUTHBEARER: any unsigned token in its time that has the scope."""

    def __init__(
        self, endpoint: TokenEndpoint, *, data: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            data=data,
            settings={
                "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
                "listener.name.plaintext.oauthbearer.sasl.jaas.config": (
                    f'{_LOGIN} unsecuredLoginStringClaim_sub="broker" '
                    f'unsecuredLoginStringClaim_scope="{SCOPE}" unsecuredValidatorRequiredScope="{SCOPE}";'
                ),
                **(settings or {}),
            },
        )
        self.endpoint = endpoint

    def client_options(self, user: str = CLIENT) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": self.endpoint.secret,
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
        }
