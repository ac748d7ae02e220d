"""The Kafka protocol served on Pulsar.

| module | knows |
|---|---|
| server | one listener: its connections, what they have under way together, its end |
| client | one connection: an ordered pipeline of answers, with budgets and back-pressure |
| limits | how much may be under way |
| productions | Produce requests: begun in order in the buffer of the socket, answered without a task |
| connection | the same without sockets: bytes in, requests out, answers in order |
| dispatch | which handler serves which API in which versions; ApiVersions is computed from it |
| handler | what a handler is given and what it gives |
| apis | one module a Kafka API |
| ports | what handlers ask of the storage behind them; Pulsar and the in-memory twin serve it |
| entities | rare answers from plain values |
| mapping | Kafka batches to Pulsar entries and back |
| groups | consumer groups: a pure state machine and its shell |
| pulsar | the ports served by a Pulsar cluster |
| process, options | a whole gateway from what an operator chose |
| life, memory | a gateway that is a process of its own |
| startup | the settings that a broker needs, and the advice for each |
| observer, metrics, health | what is told, counted and shown to operators |
"""
