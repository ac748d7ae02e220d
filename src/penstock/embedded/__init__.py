"""Real servers as child processes: Kafka, Pulsar and a schema registry, from pinned jars.

| module | knows |
|---|---|
| kafka, pulsar, registry | one server each: settings, ports, readiness, the secured variant |
| gateway | our own gateway, as a process like the others |
| stack, supervisor | several servers as one; the detached owner of `penstock dev up` |
| server, process, guard | the life of a server; no orphan, whatever happens to us |
| java, artifacts, artifact, ivy, relock | which Java; the jars of the locks on this machine |
| certificates, private, truststore, log4j2, ports, home | what servers need from the machine |
"""
