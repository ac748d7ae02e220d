"""What operators ask a job over HTTP: /metrics, and /healthz, which says whether every source is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from penstock.errors import PortTaken

__all__ = ["Answer", "Page", "serve"]

_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page has to say."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Answer]


@contextmanager
def serve(host: str, port: int, pages: Mapping[str, Page]) -> Iterator[tuple[str, int]]:
    """Serve pages by their path in a thread; give the address."""
    try:
        server = ThreadingHTTPServer((host, port), _handler(pages))
    except OSError as exc:
        raise PortTaken(
            f"cannot listen on {host}:{port}", where="--metrics", why=exc.strerror, next="name another port"
        ) from exc
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="penstock-metrics", daemon=True)
    thread.start()
    try:
        yield str(server.server_address[0]), int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_PATIENCE)


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE
        server_version = "penstock"
        sys_version = ""

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            known = f"there are {', '.join(pages)}\n".encode()
            answer = page() if page else Answer(known, HTTPStatus.NOT_FOUND)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: a scrape every few seconds is no news."""

    return Handler
