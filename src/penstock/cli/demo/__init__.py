"""`penstock demo`: a shop on real servers, every order accounted for; what `make run` shows."""

from penstock.cli.demo.command import command

__all__ = ["command"]
