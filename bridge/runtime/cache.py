"""Keep what was built on disk, so that it is built once: a folder an entry, named by a digest of what it was made of.

An entry is written aside and moved into its place, so a killed writer leaves none. It is copied out, and the copy is
compared with the digests that it was stored with, so a damaged file is never used. Nothing in it is unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_dir

LIMIT = 2**30
"""Bytes beyond which the entries that were used longest ago make room."""

MANIFEST = "manifest.json"
UNFINISHED = ".unfinished-"
STALE_SECONDS = 3600.0
"""Age from which on something unfinished is what a killed writer left."""


@dataclass(frozen=True)
class Usage:
    """What a cache holds. bytes: of all entries."""

    root: Path
    entries: int
    bytes: int


class Cache:
    """Folders of files by key. Several processes may use one `root` at once."""

    def __init__(self, root: Path, limit: int = LIMIT) -> None:
        self.root = root
        self._limit = limit

    def fetch(self, key: str, into: Path) -> bool:
        """Copy the entry's files into a folder. False where there is no such entry, or a damaged one, which goes."""
        entry = self.root / key
        present = entry.exists()
        try:
            digests = json.loads((entry / MANIFEST).read_text())
            if not digests:
                raise ValueError("an entry has files")
            for name, digest in digests.items():
                shutil.copyfile(entry / name, into / name)
                if _digest(into / name) != digest:
                    raise ValueError(name)
            os.utime(entry)
        except (OSError, ValueError, AttributeError):
            if present:  # one that has come meanwhile is somebody else's
                shutil.rmtree(entry, ignore_errors=True)
            return False
        return True

    def store(self, key: str, folder: Path) -> None:
        """Keep the files of a folder. What cannot be written is not kept; that is no reason to fail."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=self.root, prefix=UNFINISHED))
            names = [path.name for path in folder.iterdir()]
            for name in names:
                shutil.copyfile(folder / name, aside / name)
            (aside / MANIFEST).write_text(json.dumps({name: _digest(folder / name) for name in names}))
            with self._lock():
                if (self.root / key).exists():
                    shutil.rmtree(aside)
                else:
                    aside.rename(self.root / key)
                self._make_room()
        except OSError:
            return

    def drop(self, key: str) -> None:
        """Remove an entry whose files are whole and say nothing that can be used."""
        shutil.rmtree(self.root / key, ignore_errors=True)

    def usage(self) -> Usage:
        """How much is held."""
        sizes = [_size(entry) for entry in self._entries()]
        return Usage(self.root, len(sizes), sum(sizes))

    def clear(self) -> None:
        """Remove every entry."""
        for entry in self._entries():
            shutil.rmtree(entry, ignore_errors=True)

    def _entries(self) -> list[Path]:
        if not self.root.exists():
            return []
        return [path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(UNFINISHED)]

    def _lock(self) -> FileLock:
        return FileLock(self.root / ".lock")

    def _make_room(self) -> None:
        for path in self.root.glob(f"{UNFINISHED}*"):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        sizes = {entry: _size(entry) for entry in self._entries()}
        total = sum(sizes.values())
        for entry in sorted(sizes, key=lambda path: path.stat().st_mtime):
            if total <= self._limit:
                break
            shutil.rmtree(entry, ignore_errors=True)
            total -= sizes[entry]


def users_cache() -> Cache:
    """The cache of this user: in the folder that BRIDGE_CACHE_DIR names, else where the system keeps caches."""
    return Cache(Path(os.environ.get("BRIDGE_CACHE_DIR") or user_cache_dir("torch-tvm-bridge")))


@functools.cache
def code_digest(folder: Path) -> str:
    """A digest of the Python files in a folder and below it, which is part of a key for what they make."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _size(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.iterdir())
