"""`penstock dev`: local Kafka, Pulsar, registry and gateway, owned by a detached supervisor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.fetching import fetch
from penstock.cli.settings import configuration, current
from penstock.config import DEV_FILE, remove_context, write_context
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.embedded.supervisor import State

app = typer.Typer(no_args_is_help=True, help="Run Kafka, Pulsar, registry and gateway on this machine.")

_COLUMNS = ("server", "state", "pid", "address", "log")
_NONE_RUN = "no development servers run; next: penstock dev up"

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[kafka|pulsar|registry|gateway]...", show_default=False)
]


@app.callback()
def _configure() -> None:
    """Run Kafka, Pulsar, a schema registry and the gateway on this machine."""
    configuration()  # PENSTOCK_HOME may be set in penstock.yaml


@app.command()
def up(
    servers: Names = None,
    kafka_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    pulsar_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    pulsar_http_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    registry_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    gateway_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    wipe: Annotated[bool, typer.Option("--wipe", help="Begin with empty data folders.")] = False,
    sync: Annotated[bool, typer.Option(help="Pulsar syncs its journal before it acknowledges.")] = True,
) -> None:
    """Start the servers (all of them by default), wait until they are ready, write context `dev`."""
    from penstock.embedded import supervisor
    from penstock.embedded.stack import Stack

    if supervisor.is_running():
        raise UsageError(
            "the development servers run already", next="penstock dev status, or penstock dev down"
        )
    chosen = servers or _installed()
    options = {
        "servers": chosen,
        "wipe": wipe,
        "durable": sync,
        "kafka_port": kafka_port,
        "pulsar_port": pulsar_port,
        "pulsar_http_port": pulsar_http_port,
        "registry_port": registry_port,
        "gateway_port": gateway_port,
    }
    Stack(servers=chosen)  # a wrong name is an error here, not there
    fetch([name for name in chosen if name != "gateway"])
    with output.progress("starting " + ", ".join(chosen)):
        state = supervisor.up(options)
    try:
        write_context(_dev_file(), "dev", _context(state))
        _where_written().write_text(str(_dev_file().resolve()), encoding="utf-8")
    except BaseException:  # servers that no context names would be found by nobody
        supervisor.down()
        raise
    _show(state)
    output.talk(
        f"context dev is in {DEV_FILE}; next: penstock dev status, penstock dev logs, penstock dev down"
    )


@app.command()
def down() -> None:
    """Stop the servers; their data stays for the next `up`."""
    from penstock.embedded import supervisor

    with output.progress("stopping"):
        was_running = supervisor.down()
    remove_context(_dev_file(), "dev")
    if _where_written().exists():  # `up` may have been called in the folder of another project
        remove_context(Path(_where_written().read_text(encoding="utf-8")), "dev")
        _where_written().unlink()
    output.talk("the development servers are down" if was_running else "no development servers were running")


@app.command()
def status() -> None:
    """Show the servers; the exit code is 1 unless all of them run."""
    from penstock.embedded import supervisor

    running = supervisor.is_running()
    state = supervisor.read_state() if running else None
    if state is None or not state.ready:
        output.rows(_COLUMNS, [], current().output)
        output.talk("the development servers are starting" if running else _NONE_RUN)
        raise typer.Exit(1)
    if not _show(state):
        output.talk("a server has ended by itself; next: penstock dev logs, then penstock dev down")
        raise typer.Exit(1)


@app.command()
def logs(
    servers: Names = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, max=100_000)] = 40,
) -> None:
    """Print the last lines of the servers' logs."""
    from penstock.embedded import supervisor
    from penstock.embedded.process import last_lines

    found = sorted(supervisor.home().glob("data/*/logs/*.log"))
    wanted = [path for path in found if not servers or path.stem in servers]
    if not wanted:
        raise UsageError("there are no such logs", where=str(supervisor.home()), next="penstock dev up")
    for path in wanted:
        output.talk(f"{path.stem}: {path}")
        for line in last_lines(path, lines):
            output.data(line)


# Behind the name of the tool everything is the tool's, its options included.
@app.command("kafka-tool", context_settings={"allow_interspersed_args": False})
def kafka_tool(
    tool: Annotated[
        str | None, typer.Argument(show_default=False, help="Without it the tools are listed.")
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", show_default=False, help="Those of the tool.")
    ] = None,
) -> None:
    """Run one of Kafka's own tools, such as console-producer, on this or any other cluster."""
    from penstock.embedded.kafka_tools import KAFKA_TOOLS, tool_command

    if tool is None:
        return output.rows(("tool", "class"), list(KAFKA_TOOLS.items()), current().output)
    if tool in KAFKA_TOOLS:
        fetch(["kafka-tools"])
    command = tool_command(tool, arguments or [])
    # Its input, its output, its signals and its exit code are the tool's own.
    os.execv(command[0], command)


def _installed() -> list[str]:
    """Give all servers, the gateway only if its part is installed."""
    from importlib.util import find_spec

    from penstock.embedded.stack import SERVERS

    if all(map(find_spec, ("kio", "numba", "prometheus_client", "httpx"))):
        return list(SERVERS)
    output.talk("without the gateway, which is not installed; next: pip install 'penstock[gateway]'")
    return [name for name in SERVERS if name != "gateway"]


def _where_written() -> Path:
    """Give the file that names the one into which `up` has written the context."""
    from penstock.embedded import supervisor

    return supervisor.home() / "context-file"


def _dev_file() -> Path:
    return configuration().folder / DEV_FILE


def _show(state: State) -> bool:
    """Print a line for each server; give whether all of them run."""
    from penstock.embedded.supervisor import is_alive

    alive = {name: is_alive(server.pid) for name, server in state.servers.items()}
    rows = [
        (
            name,
            "ready" if alive[name] else "ended",
            server.pid,
            "  ".join(server.addresses.values()),
            _short(server.log),
        )
        for name, server in state.servers.items()
    ]
    output.rows(_COLUMNS, rows, current().output)
    return all(alive.values())


def _short(path: str) -> str:
    home = str(Path.home())
    return path.replace(home, "~", 1) if path.startswith(home) else path


def _context(state: State) -> dict[str, object]:
    servers: dict[str, object] = {}
    addresses = {name: server.addresses for name, server in state.servers.items()}
    if "kafka" in addresses:
        # Named, or the TLS of a contract would hold for servers that have none.
        plain = {"protocol": "plaintext"}
        servers["kafka"] = {"kind": "kafka", "address": addresses["kafka"]["bootstrap"], "security": plain}
    if "pulsar" in addresses:
        pulsar = addresses["pulsar"]
        servers["pulsar"] = {"kind": "pulsar", "address": pulsar["service"], "admin": pulsar["admin"]}
    context: dict[str, object] = {"servers": servers}
    if "registry" in addresses:
        context["registry"] = {"address": addresses["registry"]["registry"]}
    if "gateway" in addresses:
        context["gateway"] = {"address": addresses["gateway"]["bootstrap"]}
    return context
