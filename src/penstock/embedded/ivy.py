"""Downloads artifacts with the Ivy that is inside PySpark: exact files, no transitive search, no host named.

Ivy's own default repository is used; `PENSTOCK_MAVEN_MIRROR` names another root. Its checksums are off:
ours is the sha256 of the lock. Finished files lie in the staging folder under `Artifact.path`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from penstock.embedded.artifact import Artifact
from penstock.embedded.java import Java
from penstock.embedded.process import ServerProcess
from penstock.embedded.truststore import system_truststore
from penstock.errors import ConfigError, MissingExtra

__all__ = ["start_download"]

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central" defaultConflictManager="all"/>
  <caches defaultCacheDir={cache} artifactPattern="[organisation]/[artifact]-[revision](-[classifier]).[ext]"
          checkUpToDate="false"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checksums="" {root}/></resolvers>
</ivysettings>
"""

_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="jars"/>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""

_DEPENDENCY = """    <dependency org={group} name={name} rev={version} transitive="false">
{artifacts}
    </dependency>"""


def start_download(java: Java, artifacts: Sequence[Artifact], staging: Path) -> ServerProcess:
    """Start one Ivy for these artifacts; what it says goes to `ivy.log` in the staging folder.

    It runs behind a guard as the servers do: an Ivy left over would write into the next one's files.
    """
    staging.mkdir(parents=True, exist_ok=True)
    settings, module = staging / "ivysettings.xml", staging / "ivy.xml"
    settings.write_text(_SETTINGS.format(cache=quoteattr(str(staging)), root=_root()), encoding="utf-8")
    module.write_text(_module(artifacts), encoding="utf-8")
    command = [str(java.executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += _trust(staging) + _proxy()
    command += ["-jar", str(_ivy_jar()), "-settings", str(settings), "-ivy", str(module), "-warn"]
    log = staging / "ivy.log"
    log.unlink(missing_ok=True)
    return ServerProcess("Ivy", command, out=log)


def _root() -> str:
    mirror = os.environ.get("PENSTOCK_MAVEN_MIRROR")
    return f"root={quoteattr(mirror)}" if mirror else ""


def _module(artifacts: Sequence[Artifact]) -> str:
    modules: dict[tuple[str, str, str], list[Artifact]] = {}
    for artifact in artifacts:
        modules.setdefault((artifact.group, artifact.name, artifact.version), []).append(artifact)
    return _MODULE.format(dependencies="\n".join(_dependency(files) for files in modules.values()))


def _dependency(files: Sequence[Artifact]) -> str:
    first = files[0]
    return _DEPENDENCY.format(
        group=quoteattr(first.group),
        name=quoteattr(first.name),
        version=quoteattr(first.version),
        artifacts="\n".join(_artifact(file) for file in files),
    )


def _artifact(file: Artifact) -> str:
    classifier = f" m:classifier={quoteattr(file.classifier)}" if file.classifier else ""
    name, type_ = quoteattr(file.name), quoteattr(file.type)
    return f"      <artifact name={name} type={type_} ext={type_}{classifier}/>"


def _trust(staging: Path) -> list[str]:
    store = system_truststore(staging)
    return [f"-Djavax.net.ssl.trustStore={store}"] if store else []


def _proxy() -> list[str]:
    """Java does not read the usual variables; take host and port from them."""
    named = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not named:
        return []
    try:
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        port = proxy.port or (443 if proxy.scheme == "https" else 80)
    except ValueError as exc:
        raise ConfigError(
            "https_proxy does not name a proxy", why=str(exc), next="set it to http://HOST:PORT"
        ) from exc
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={port}"]


def _ivy_jar() -> Path:
    # Found, not imported: PySpark takes seconds to import and only its folder is needed.
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("embedded", "pyspark", purpose="fetching the servers' jars")
    return next(Path(spec.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
