"""Configuration: layers with origins, contexts with credentials, secrets that stay masked."""

from penstock.config.child_environment import Child, child_environment
from penstock.config.contexts import Context, Security, Server
from penstock.config.files import FILES_VARIABLE, located
from penstock.config.keys import KEYS, Key
from penstock.config.layers import DEV_FILE, FILE, Config, find_project, find_upwards, load
from penstock.config.secret import MASK, Revealed, Secret, current
from penstock.config.values import Origin, Value
from penstock.config.writer import choose_context, remove_context, write_context

__all__ = [
    "DEV_FILE",
    "FILE",
    "FILES_VARIABLE",
    "KEYS",
    "MASK",
    "Child",
    "Config",
    "Context",
    "Key",
    "Origin",
    "Revealed",
    "Secret",
    "Security",
    "Server",
    "Value",
    "child_environment",
    "choose_context",
    "current",
    "find_project",
    "find_upwards",
    "load",
    "located",
    "remove_context",
    "write_context",
]
