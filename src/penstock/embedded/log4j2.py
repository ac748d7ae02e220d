"""The log4j2 configuration of the embedded servers: one file, bounded, at the level that helps."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

__all__ = ["write_log4j2"]

_LOG4J2 = """<Configuration status="error">
  <Appenders>
    <RollingFile name="file" fileName={file} filePattern={rolled}>
      <PatternLayout pattern="%d{{ISO8601}} %-5p [%t] %c{{1.}} - %m%n"/>
      <SizeBasedTriggeringPolicy size="20 MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
{loggers}
    <Root level="info"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""


def write_log4j2(path: Path, log: Path, levels: dict[str, str] | None = None) -> str:
    """Write the configuration and give the Java option that names it."""
    loggers = [
        f"    <Logger name={quoteattr(name)} level={quoteattr(level)}/>"
        for name, level in (levels or {}).items()
    ]
    path.write_text(
        _LOG4J2.format(file=quoteattr(str(log)), rolled=quoteattr(f"{log}.%i"), loggers="\n".join(loggers)),
        encoding="utf-8",
    )
    return f"-Dlog4j2.configurationFile={path}"
