"""What `penstock doctor` looks at, in four groups; every check that fails names the command that repairs it.

A part that is not installed or not configured is no failure: it is said, with the command that adds it.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from penstock.cli.cluster_checks import ask, contract_of
from penstock.config import Config, Context, Secret, Server, find_upwards
from penstock.config.secret import mask_address
from penstock.errors import ConfigError, MissingExtra, PenstockError

if TYPE_CHECKING:
    from penstock.contract import Contract

__all__ = ["GROUPS", "Check", "examine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; ok is None when there is nothing to judge."""

    group: str = ""
    name: str
    ok: bool | None
    detail: str
    repair: str | None = None


Probe = Callable[[Config], Iterator[Check]]
CONTRACT_FILE: Final = "asyncapi.yaml"
SERVER_LOCKS: Final = ("kafka", "pulsar", "registry")


def examine(config: Config) -> Iterator[Check]:
    """Run every probe; one that fails with a known error becomes a finding of its own."""
    for group, probes in GROUPS.items():
        for probe in probes:
            for check in _guarded(probe, config):
                yield Check(
                    group=group, name=check.name, ok=check.ok, detail=check.detail, repair=check.repair
                )


def _guarded(probe: Probe, config: Config) -> Iterator[Check]:
    try:
        yield from probe(config)
    except PenstockError as exc:
        name = probe.__name__.strip("_").replace("_", " ")
        verdict = None if isinstance(exc, MissingExtra) else False
        yield Check(name=name, ok=verdict, detail=_story(exc), repair=exc.next)


def _story(exc: PenstockError) -> str:
    return "; ".join(part for part in (exc.what, exc.where, exc.why) if part)


def _python(_config: Config) -> Iterator[Check]:
    yield Check(
        name="python",
        ok=True,
        detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    )


def _java(_config: Config) -> Iterator[Check]:
    from penstock.embedded.java import find_java
    from penstock.errors import JavaError

    try:
        java = find_java()
    except JavaError as exc:
        needed = _version_of("pyspark") is not None
        yield Check(name="java", ok=False if needed else None, detail=_story(exc), repair=exc.next)
        return
    yield Check(name="java", ok=True, detail=f"{java.version} from {java.origin}, {_tilde(java.home)}")


def _disk(_config: Config) -> Iterator[Check]:
    from penstock.embedded.home import MINIMUM_FREE_BYTES, penstock_home

    free = shutil.disk_usage(_existing(penstock_home())).free
    enough = free >= MINIMUM_FREE_BYTES
    advice = (
        None if enough else f"export PENSTOCK_HOME=... on a disk with {MINIMUM_FREE_BYTES // 10**9} GB free"
    )
    yield Check(name="disk", ok=enough, detail=f"{free / 1e9:.1f} GB free", repair=advice)


def _cache(_config: Config) -> Iterator[Check]:
    from penstock.embedded.home import penstock_home

    home = penstock_home()
    writable = os.access(_existing(home), os.W_OK | os.X_OK)
    detail = f"{_tilde(home)}{'' if writable else ' cannot be written'}"
    yield Check(
        name="cache", ok=writable, detail=detail, repair=None if writable else "export PENSTOCK_HOME=..."
    )


def _ports(_config: Config) -> Iterator[Check]:
    from penstock.embedded.ports import LOOPBACK, choose_port

    choose_port(0, setting="the loopback interface")
    yield Check(name="ports", ok=True, detail=f"{LOOPBACK} gives free ones")


def _server_jars(_config: Config) -> Iterator[Check]:
    yield from (_jars(f"{lock} jars", lock) for lock in SERVER_LOCKS)


def _connector_jars(_config: Config) -> Iterator[Check]:
    yield _jars("connector jars", "spark")


def _jars(name: str, lock: str) -> Check:
    """Missing jars are no failure: what needs them fetches them."""
    from penstock.embedded.artifacts import status

    present, total = status(lock)
    later = "" if present == total else ", fetched when they are needed"
    return Check(name=name, ok=True if present == total else None, detail=f"{present} of {total}{later}")


def _spark(_config: Config) -> Iterator[Check]:
    version = _version_of("pyspark")
    if version is None:
        yield Check(name="pyspark", ok=None, detail="not installed", repair="pip install 'penstock[spark]'")
    else:
        yield Check(name="pyspark", ok=True, detail=version)


def _contract(config: Config) -> Iterator[Check]:
    named = config.value("contract")
    path = named.get() if named.text is not None else find_upwards(CONTRACT_FILE)
    if path is None:
        yield Check(name="document", ok=None, detail=f"no {CONTRACT_FILE} here or above")
    else:
        yield _validated(Path(os.path.relpath(str(path))))


def _validated(path: Path) -> Check:
    from penstock.contract import Severity, validate

    counts = Counter(finding.severity for finding in validate(path).findings)
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    repair = f"penstock validate {path}" if errors else None
    return Check(
        name="document",
        ok=not errors,
        detail=f"{path}, errors: {errors}, warnings: {warnings}",
        repair=repair,
    )


def _clusters(config: Config) -> Iterator[Check]:
    context = config.context()
    if context is None:
        listed = "penstock context" if config.context_names else "penstock dev up"
        yield Check(name="context", ok=None, detail="none chosen", repair=listed)
        return
    timeout = config.get("connect_timeout")
    assert isinstance(timeout, float)
    contract = contract_of()
    probes = [_probe(context, contract, name, timeout) for name in _members(context)]
    with ThreadPoolExecutor(max_workers=16) as pool:
        yield from pool.map(lambda probe: probe(), probes)


def _members(context: Context) -> Iterator[str]:
    yield from context.server_names
    yield from (part for part in ("registry", "gateway") if any(path[0] == part for path in context.values))


def _probe(context: Context, contract: Contract | None, name: str, timeout: float) -> Callable[[], Check]:
    def run() -> Check:
        try:
            server = _member(context, name)
            check, began = _reach(context, server, timeout), perf_counter()
            if not check.ok:
                return check
            told = ", ".join(ask(server, context, contract, timeout))
            return replace(
                check, detail=f"{check.detail}, login {(perf_counter() - began) * 1000:.0f} ms, {told}"
            )
        except MissingExtra as exc:
            return replace(check, detail=f"{check.detail}; not logged in: {exc.what}", repair=exc.next)
        except PenstockError as exc:
            return Check(name=name, ok=False, detail=_story(exc), repair=exc.next)

    return run


def _member(context: Context, name: str) -> Server:
    single = {"registry": context.registry, "gateway": context.gateway}.get(name)
    server = single() if single is not None and name not in context.server_names else None
    return server if server is not None else context.server(name)


def _reach(context: Context, server: Server, timeout: float) -> Check:
    """Connect to every endpoint and look up every secret; the first trouble is the answer."""
    _look_up_secrets(server)
    shown = f"{server.kind} {mask_address(server.address)}"
    slowest = 0.0
    for host, port in server.endpoints():
        began = perf_counter()
        try:
            socket.create_connection((host, port), timeout=timeout).close()
        except (OSError, ValueError) as exc:  # ValueError: a host name that cannot be one
            reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            return Check(
                name=server.name, ok=False, detail=f"{shown}: {reason}", repair=_revive(context, server)
            )
        slowest = max(slowest, perf_counter() - began)
    return Check(name=server.name, ok=True, detail=f"{shown}, {slowest * 1000:.1f} ms")


def _look_up_secrets(server: Server) -> None:
    security = server.security
    for secret in (security.password, security.token, security.key_password):
        if isinstance(secret, Secret):
            secret.reveal()
    for path in (security.ca_file, security.cert_file, security.key_file):
        if path is not None and not os.access(path, os.R_OK):
            raise ConfigError(
                f"{path} cannot be read",
                where=server.origin,
                next=f"penstock context show, then correct {path.name}",
            )


def _revive(context: Context, server: Server) -> str:
    generated = any(value.origin.generated for value in context.values.values())
    return "penstock dev up" if generated else f"start it, or correct its address in {server.origin}"


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _tilde(path: Path) -> str:
    home = str(Path.home())
    return f"~{str(path).removeprefix(home)}" if str(path).startswith(home + os.sep) else str(path)


GROUPS: Final[Mapping[str, tuple[Probe, ...]]] = {
    "machine": (_python, _java, _disk, _cache, _ports, _server_jars),
    "clusters": (_clusters,),
    "contract": (_contract,),
    "pipeline": (_spark, _connector_jars),
}
