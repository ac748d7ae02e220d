"""The asyncio client of the Pulsar binary protocol and its admin REST calls."""
