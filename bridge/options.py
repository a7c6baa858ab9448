"""What `bridge.compile` can be told, checked once and then handed down unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from bridge.errors import BadOption

DEFAULT_ORDER: Mapping[str, tuple[str, ...]] = {"cuda": ("triton", "inductor", "eager"), "cpu": ("eager",)}
"""Who takes what TVM does not, by the kind of device. For a CPU Triton has no kernels, and Inductor compiles long."""

Dynamic = bool | Literal["hot"] | None
"""What sizes are: symbols, numbers, symbols with static programs for what comes often; None lets torch decide."""

FALLBACKS = ("triton", "inductor", "eager")
"""The backends that an order of fallbacks can name."""


@dataclass(frozen=True)
class Options:
    """Options of one compilation.

    target: "tvm"; "triton", where Triton is asked first and TVM takes the rest; "inductor" or "eager"; or a TVM target
        as a string or a mapping.
    dynamic: as in `torch.compile`: None lets torch decide, True and False force it; "hot" is True, and sizes that come
        often get a static program of their own beside the symbolic one.
    fallback: backends that take what TVM does not, in order; the last one has to be "eager".
    library: call ATen for what a vendor's library does faster, such as larger matrix products, convolutions and
        attention; False makes TVM generate them as far as it can.
    partitioner: how the joint graph is split: "min_cut" recomputes cheap values, "default" saves them.
    fuse_joint: compute the gradients in the forward where that ends in one loss, so that nothing is kept for them.
    cache: keep what was built on disk and take it from there; `bridge cache` shows where, BRIDGE_CACHE_DIR says so.
    timeout: seconds that one build in the worker may take before it counts as hung.
    mode: "reduce-overhead" records programs on a GPU as CUDA graphs, which one call replays; "default" records none.
        If not given, whole training steps are recorded, whose memory nobody else reads, and nothing else.
    read_values: keep in the graph what reads a number or a size out of a tensor (`item`, `nonzero`, a mask as an
        index), as a call of ATen, where nothing branches on it; False breaks the graph there, as torch does.
    tune: seconds for which schedules of hot kernels are searched on a CPU, by TVM's MetaSchedule, when a graph is
        built; 0 is no search. A kernel that was found is used where it was measured to be quicker than that by rules.
    denied: names of overloads that TVM is not given ("aten.gelu.default"), for experiments and bisection.
    """

    target: str | Mapping[str, Any] = "tvm"
    dynamic: Dynamic = None
    fallback: tuple[str, ...] | None = None
    library: bool = True
    partitioner: Literal["min_cut", "default"] = "min_cut"
    fuse_joint: bool = False
    cache: bool = True
    timeout: float = 300.0
    read_values: bool = True
    denied: tuple[str, ...] = field(default=())
    mode: Literal["default", "reduce-overhead"] | None = None
    tune: float = 0

    def __post_init__(self) -> None:
        if self.partitioner not in ("min_cut", "default"):
            raise BadOption(f"partitioner={self.partitioner!r}: choose 'min_cut' or 'default'")
        if self.dynamic not in (None, True, False, "hot"):
            raise BadOption(f"dynamic={self.dynamic!r}: choose None, True, False or 'hot'")
        for name in ("library", "fuse_joint", "cache", "read_values"):
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name}={getattr(self, name)!r}: choose True or False")
        if isinstance(self.denied, str):
            raise BadOption(f"denied={self.denied!r}: give a tuple of names")
        order = self.order("cpu")
        if isinstance(self.fallback, str) or order[-1:] != ("eager",) or any(name not in FALLBACKS for name in order):
            names = ", ".join(map(repr, FALLBACKS))
            raise BadOption(f"fallback={self.fallback!r}: name backends among {names}, 'eager' at the end")
        if self.mode not in (None, "default", "reduce-overhead"):
            raise BadOption(f"mode={self.mode!r}: choose None, 'default' or 'reduce-overhead'")
        if self.timeout <= 0:
            raise BadOption(f"timeout={self.timeout!r}: give seconds above zero")
        number = isinstance(self.tune, int | float) and not isinstance(self.tune, bool)
        if not number or not 0 <= self.tune < math.inf:
            raise BadOption(f"tune={self.tune!r}: give seconds, or 0 for no search")

    @property
    def symbolic(self) -> bool | None:
        """Whether sizes are symbols, as torch is told."""
        return True if self.dynamic == "hot" else self.dynamic

    def order(self, device: str) -> tuple[str, ...]:
        """The backends that take what TVM does not, in the order in which they are asked on a kind of device."""
        return DEFAULT_ORDER[device] if self.fallback is None else tuple(self.fallback)

    def updated(self, changes: Mapping[str, Any]) -> Options:
        """These options with some changed. Raises BadOption for a name that is none of them."""
        known = {f.name for f in fields(self)}
        for name in changes:
            if name not in known:
                raise BadOption(f"no option {name!r}; there are {', '.join(sorted(known))}")
        return replace(self, **changes)
