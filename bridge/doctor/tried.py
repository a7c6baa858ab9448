"""One way of running, in this process: `python -m bridge.doctor.tried NAME` prints how it went as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bridge.doctor.check import State

Said = tuple[State, str, str]
"""The state, the detail and the remedy."""


def torch_() -> Said:
    """Torch can be imported and has an adapter of its own."""
    import torch

    from bridge.frontends.torch.adapters import adapter_for

    adapter, exact = adapter_for(torch.__version__)
    told = f"adapter for {', '.join(adapter.series)}"
    if exact:
        return State.OK, told, ""
    return State.NOTE, f"no adapter for {torch.__version__}: the {told} is used", "run the tests, and write one"


def tvm_() -> Said:
    """TVM can be imported and writes a module as JSON, which a wrong tvm-ffi dies of."""
    from bridge.backends.tvm.compat import ir, te, tvm

    x: Any = te.placeholder((4,), name="x")
    y: Any = te.compute((4,), lambda i: x[i] + 1, name="y")
    made = tvm.IRModule({"main": te.create_prim_func([x, y])})
    return State.OK, f"a module written as {len(ir.save_json(made))} characters", ""


def capture() -> Said:
    """AOTAutograd gives a forward and a backward graph, and they do what eager does."""
    compiled, right = _trained("eager")
    if (len(compiled.joints), len(compiled.graphs)) != (1, 2):
        return State.WRONG, f"{len(compiled.graphs)} graphs, not 2: {_reasons(compiled)}", "see docs/dead-ends.md"
    return (State.OK, "forward and backward captured and run", "") if right else _wrong_gradient()


def threads() -> Said:
    """Kernels run on torch's threads."""
    import torch

    from bridge.backends.tvm.threads import install

    refused = install()
    if refused is not None:
        return State.NOTE, refused, "use torch's own wheel, which is built with OpenMP"
    return State.OK, f"{torch.get_num_threads()} of torch's own", ""


def kernel() -> Said:
    """A function and its gradient become kernels."""
    start = perf_counter()
    compiled, right = _trained("tvm")
    calls = sum(graph.kernel_calls * graph.runs[0] for graph in compiled.graphs)
    if not calls:
        return State.WRONG, f"none was compiled: {_reasons(compiled)}", "see docs/dead-ends.md"
    if not right:
        return _wrong_gradient()
    return State.OK, f"compiled and run, forward and backward, in {perf_counter() - start:.1f} s", ""


def inductor() -> Said:
    """Inductor, the first fallback if one asks for it, compiles."""
    start = perf_counter()
    _, right = _trained("inductor")
    return (State.OK, f"compiled and run in {perf_counter() - start:.1f} s", "") if right else _wrong_gradient()


def cuda() -> Said:
    """There is a GPU, and torch can use it."""
    import torch

    if not torch.cuda.is_available():
        return State.OK, "there is none, or this torch was built without", ""
    torch.ones(4, device="cuda").sum().item()
    return State.OK, f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}", ""


ROUTES: dict[str, Callable[[], Said]] = {
    "torch": torch_, "tvm": tvm_, "capture": capture, "threads": threads, "kernel": kernel, "inductor": inductor,
    "CUDA": cuda,
}  # fmt: skip


def _trained(target: str) -> tuple[Any, bool]:
    """The compilation of a small function for a target, and whether its gradient is eager's."""
    import torch

    import bridge

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.tanh() * 2).sum()

    x = torch.linspace(-1, 1, 50, requires_grad=True)
    compiled = bridge.compile(function, target=target)
    (found,) = torch.autograd.grad(compiled(x), x)
    (expected,) = torch.autograd.grad(function(x), x)
    return bridge.inspect(compiled), torch.allclose(found, expected)


def _reasons(compilation: Any) -> str:
    return "; ".join(event.detail for event in compilation.ledger) or "the ledger does not say why"


def _wrong_gradient() -> Said:
    return State.WRONG, "a gradient is wrong", "please report it with the output of bridge doctor --json"


def main() -> None:
    state, detail, remedy = ROUTES[sys.argv[1]]()
    print("\n" + json.dumps({"state": state, "detail": detail, "remedy": remedy}))


if __name__ == "__main__":
    main()
