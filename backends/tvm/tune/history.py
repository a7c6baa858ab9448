"""What was searched for one kernel, kept in the user's cache: MetaSchedule's records, and what came of them.

An entry goes by the kernel itself, not by its graph: what was found serves wherever the same kernel stands again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm_ffi.serialization import from_json_graph_str

from bridge.backends.tvm.kept import cpu_name
from bridge.runtime.cache import Cache, code_digest, users_cache
from bridge.versions import installed

VERDICT, CHOSEN = "verdict.json", "chosen.json"


@dataclass(frozen=True)
class Verdict:
    """What came of a search. seconds: that it took. trials: proposals that were run. ours, found: of one run.

    ratio: how many times as quick as ours the best is, a median, and between which quartiles. by: who proposed it.
    ratios: of the best of each who proposed. chosen: whether it is used. ended: nothing is left to be proposed. found,
    ratio and spread are 0 where no proposal was worth a comparison.
    """

    trials: int
    seconds: float
    ours: float
    found: float = 0.0
    ratio: float = 0.0
    spread: Sequence[float] = (0.0, 0.0)
    by: str = ""
    ratios: Mapping[str, float] = field(default_factory=dict)
    chosen: bool = False
    ended: bool = False


class History:
    """The entries of the kernels of one machine, target and number of threads. cache: None keeps nothing."""

    def __init__(self, target: Any, threads: int, keeps: bool) -> None:
        self._cache: Cache | None = users_cache() if keeps else None
        self._about = [str(target), str(threads), *_surroundings()]

    @contextmanager
    def entry(self, module: Any, ours: Any) -> Iterator[Entry]:
        """A folder with what is known of a kernel, which may be nothing."""
        parts = [tvm.ir.save_json(module), tvm.ir.save_json(ours), *self._about]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if self._cache is not None:
                self._cache.fetch(key, folder)
            yield Entry(folder, self._cache, key)


@dataclass(frozen=True)
class Entry:
    """Of one kernel."""

    folder: Path
    cache: Cache | None
    key: str

    @property
    def verdict(self) -> Verdict | None:
        """What came of the search so far."""
        path = self.folder / VERDICT
        return Verdict(**json.loads(path.read_text())) if path.exists() else None

    @property
    def function(self) -> Any | None:
        """The kernel that is used in place of ours."""
        path = self.folder / CHOSEN
        return from_json_graph_str(path.read_text()) if path.exists() else None

    def keep(self, verdict: Verdict, function: Any | None) -> None:
        """Write down what came of it, in place of what was known before."""
        (self.folder / VERDICT).write_text(json.dumps(asdict(verdict)))
        (self.folder / CHOSEN).unlink(missing_ok=True)
        if function is not None:
            (self.folder / CHOSEN).write_text(tvm.ir.save_json(function))
        if self.cache is not None:
            self.cache.drop(self.key)
            self.cache.store(self.key, self.folder)


@functools.cache
def _surroundings() -> list[str]:
    """Our own code, the package that compiles, and the machine."""
    return [code_digest(Path(__file__).parents[1]), tvm.__version__, str(installed("tvm_ffi")), cpu_name()]


def described(verdict: Verdict) -> Mapping[str, Any]:
    """As the program's answer tells it."""
    told = {**asdict(verdict), "spread": list(verdict.spread)}
    return {name: value for name, value in told.items() if name != "ended"}
