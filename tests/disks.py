"""Disks that are full and files that cannot be written, for real, whatever this machine allows.

Where a test may mount file systems and make files immutable, that is done. Elsewhere, such as in
a container, limits and owners of the operating system lead to errors of the same kinds.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Disk", "small_disk", "unwritable"]

NOBODY = 65534


class Disk:
    """A folder whose disk can be full.

    Attributes
    ----------
    folder : where its files are
    mounted : whether it is a disk of its own; else this process can write no file while it is full
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self._size = folder, size
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        self.mounted = _did(mount)
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Leave no room."""
        if self.mounted:
            with pytest.raises(OSError, match="No space left"):
                (self.folder / "other").write_bytes(b"x" * (2 * self._size))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))

    def free(self) -> None:
        """Make room again."""
        (self.folder / "other").unlink(missing_ok=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


def _did(command: list[str]) -> bool:
    """Whether a command is there, and did what it should."""
    there = shutil.which(command[0]) is not None
    return there and subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Disk]:
    """A disk of so many bytes, which is gone in the end."""
    disk = Disk(folder, size)
    try:
        yield disk
    finally:
        disk.free()
        if disk.mounted:
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def unwritable(file: Path) -> Iterator[None]:
    """Let nobody write a file, not even root; all must be allowed to look into its folder."""
    if _did(["chattr", "+i", str(file)]):
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", str(file)], check=True)
        return
    mode, root = file.stat().st_mode, os.geteuid() == 0
    file.chmod(0o444)
    if root:  # whom modes do not stop
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)
        file.chmod(mode)
