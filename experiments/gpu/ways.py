"""The ways in which a training step is taken on a GPU: through the model alone, or with the optimizer's update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd

import bridge

Step = Callable[[], Any]
Inputs = Mapping[str, torch.Tensor]


def nothing_compiled(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """A program that computes nothing: it gives what the graph gave when it was first run."""
    held: list[Any] = []

    def run(args: list[Any]) -> list[Any]:
        if not held:
            held.extend(module(*args))
        args.clear()
        return [one.detach() if isinstance(one, torch.Tensor) else one for one in held]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


COMPILERS: Mapping[str, Callable[[nn.Module], Any]] = {
    "eager": lambda model: model,
    "nothing": lambda model: torch.compile(
        model, backend=aot_autograd(fw_compiler=nothing_compiled, bw_compiler=nothing_compiled)
    ),
    "inductor": torch.compile,
    "bridge": bridge.compile,
    "inductor graphs": lambda model: torch.compile(model, mode="reduce-overhead"),
    "bridge graphs": lambda model: bridge.compile(model, options={"mode": "reduce-overhead"}),
}
"""How the model is compiled; "graphs" are CUDA graphs, "nothing" is what capture and autograd cost without kernels."""


def gradients(compile: Callable[[nn.Module], Any], model: nn.Module, inputs: Inputs) -> Step:
    """Forward, loss and backward, the gradients made anew."""
    compiled = compile(model)
    parameters = list(model.parameters())

    def step() -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(**inputs)
        loss.backward()
        return loss

    return step


def updated(compile: Callable[[nn.Module], Any], model: nn.Module, inputs: Inputs, capturable: bool = False) -> Step:
    """The same, and fused AdamW after it."""
    step = gradients(compile, model, inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=capturable)

    def with_update() -> torch.Tensor:
        loss = step()
        optimizer.step()
        return loss

    return with_update


def captured(model: nn.Module, inputs: Inputs) -> Step:
    """Eager's step with fused AdamW, recorded whole as one CUDA graph."""
    step = updated(COMPILERS["eager"], model, inputs, capturable=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for parameter in model.parameters():
        parameter.grad = None
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return loss

    replay.keeps = model, inputs, step  # type: ignore[attr-defined]  # the graph reads their memory
    return replay


def whole(model: nn.Module, inputs: Inputs) -> Step:
    """The bridge's whole step, with AdamW."""
    compiled = bridge.compile_step(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True))

    def step() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return compiled(inputs)

    step.compiled = compiled  # type: ignore[attr-defined]
    return step


WAYS: Mapping[str, Callable[[nn.Module, Inputs], Step]] = {
    **{name: (lambda m, i, how=how: gradients(how, m, i)) for name, how in COMPILERS.items()},
    "eager, AdamW": lambda m, i: updated(COMPILERS["eager"], m, i),
    "eager, AdamW, captured": captured,
    "inductor, AdamW": lambda m, i: updated(COMPILERS["inductor"], m, i),
    "inductor graphs, AdamW": lambda m, i: updated(COMPILERS["inductor graphs"], m, i),
    "bridge, whole step": whole,
}
"""By name, how a step is made of a model and its inputs. Those with AdamW update the parameters."""
