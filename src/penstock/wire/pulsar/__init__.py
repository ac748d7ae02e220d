"""The Pulsar binary protocol as bytes: frames, commands, entries, checksums."""
