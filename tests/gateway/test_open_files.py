"""Connections of clients leave files for what the gateway needs itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import logging, resource, sys
from penstock.gateway.limits import Limits
from penstock.gateway.open_files import fitting

logging.basicConfig(stream=sys.stderr)
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
found = fitting(Limits(connections=connections))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], found.connections, found.connections_per_address)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "files", "clients", "per_address"),
    [
        (256, 4096, 500, 2000, 500, 1000),
        (256, 4096, 5000, 4096, 3072, 1000),
        (256, 256, 5000, 256, 192, 192),
        (3000, 4096, 500, 3000, 500, 1000),
    ],
)
def test_as_many_connections_as_there_are_files_for(
    soft: int, hard: int, connections: int, files: int, clients: int, per_address: int
) -> None:
    code = [sys.executable, "-c", ASK, *map(str, (soft, hard, connections))]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    assert [int(each) for each in done.stdout.split()] == [files, clients, per_address]
    assert ("ulimit -n" in done.stderr) is (clients < connections)
