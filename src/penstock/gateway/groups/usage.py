"""How much memory the groups of each tenant take in one partition, and who may take more.

A tenant is the namespace of a group; groups without a namespace are one tenant together. Each tenant has a
limit of its own, so that one that fills it refuses nobody else. If all together take more than the partition
may hold, only those above their equal share are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.tenants import SCOPED, read_scope

__all__ = ["Usage", "commit_bytes", "tenant_of"]

_COMMIT_OVERHEAD: Final = 400
"""What a commit takes beside its texts: the objects, and its place in two tables (CPython 3.11, measured)."""
_OWN: Final = ""


def tenant_of(group_id: str) -> str:
    """Give the namespace of a stored group; the empty string if it has none.

    >>> tenant_of("//acme/shop/billing"), tenant_of("billing")
    ('acme/shop', '')
    """
    scope = read_scope(group_id) if group_id.startswith(SCOPED) else None
    return _OWN if scope is None else scope[0]


def commit_bytes(topic: str, commit: Commit | None) -> int:
    """Estimate the memory of one committed offset, with a byte for each character; 0 if there is none."""
    return 0 if commit is None else _COMMIT_OVERHEAD + len(topic) + len(commit.metadata)


class Usage:
    """The groups and bytes of each tenant."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.groups: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.all_bytes = 0

    def add(self, tenant: str, *, groups: int = 0, size: int = 0) -> None:
        """Count groups and bytes that came, or went if negative."""
        if not groups and not size:
            return
        self.groups[tenant] += groups
        self.bytes[tenant] += size
        self.all_bytes += size
        if not self.groups[tenant] and not self.bytes[tenant]:
            del self.groups[tenant], self.bytes[tenant]

    def takes_group(self, tenant: str) -> bool:
        """Whether a tenant may have one more group."""
        return self.groups[tenant] < self._limits.max_groups

    def takes_bytes(self, tenant: str, size: int) -> bool:
        """Whether a tenant may have so many bytes more; what grows nothing is always taken."""
        if size <= 0:
            return True
        after = self.bytes[tenant] + size
        if after > self._limits.max_tenant_bytes:
            return False
        share = self._limits.max_bytes // (len(self.bytes) + (tenant not in self.bytes))
        return self.all_bytes + size <= self._limits.max_bytes or after <= share
