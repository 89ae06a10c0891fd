"""What must not live on in the child of a fork: locks, sockets, threads, leased positions."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forgetful", "forget_after_fork"]


class Forgetful(Protocol):
    """Has things that belong to one process."""

    def forget(self) -> None:
        """Start anew in the child; nothing else runs meanwhile."""


_known: WeakSet[Forgetful] = WeakSet()


def forget_after_fork(one: Forgetful) -> None:
    """Call its `forget` in every child forked from now on.

    A check of os.getpid() would come too late where another thread held a lock during the fork.
    """
    _known.add(one)


def _forget() -> None:
    for one in list(_known):
        one.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
