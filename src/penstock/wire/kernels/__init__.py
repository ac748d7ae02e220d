"""Compiled loops over whole batches of bytes, shared by gateway and pipeline."""
