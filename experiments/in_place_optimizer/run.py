"""A training step as one program against eager and Inductor: bytes copied back, launches, time, and the parameters.

    python -m experiments.in_place_optimizer.run [mlp ppo gpt2 update] [--rounds 20]

Each model runs in a process of its own and is trained by AdamW in four ways that take turns: eager with `fused=True`;
`torch.compile` with `fused=True`; `torch.compile` with a compiled `optimizer.step`; `bridge.compile_step`. Before
that, 50 steps of the last are compared with as many in eager. "update" is 100 tensors of which the gradients are
known: nothing but an update is left to do, and it stands against `optimizer.step()` alone.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

import bridge
from bridge.demo.timing import interleaved, machine
from bridge.ledger import Measure, Record
from bridge.ledger.event import COPIED_BACK
from bridge.ledger.jsonl import read, write
from experiments.corpus import Made
from experiments.corpus.steps import class_scores
from experiments.models import MODELS

RESULTS = Path(__file__).parent / "results" / "in_place_optimizer.jsonl"
STEPS = 50
"""Steps after which the parameters are compared."""

SHORTEST = 5e-3
"""Seconds that one reading takes at least."""

Step = Callable[[], object]


class Given(torch.autograd.Function):
    """A loss of zero whose gradients by the first half of its arguments are the second half."""

    @staticmethod
    def forward(ctx: Any, *both: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*both[len(both) // 2 :])
        return both[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = ctx.saved_tensors
        return (*gradients, *[None] * len(gradients))


class Tensors(nn.Module):
    """A hundred tensors, and a loss whose gradients are known."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(256, 64), (64,), (128, 128), (128,)] * 25
        self.tensors = nn.ParameterList([nn.Parameter(torch.randn(size)) for size in sizes])
        for n, size in enumerate(sizes):
            self.register_buffer(f"gradient{n}", torch.randn(size))

    def forward(self) -> torch.Tensor:
        return Given.apply(*self.tensors, *self.buffers())


def mlp() -> Made:
    """Three layers over (32, 16)."""
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)]
    return nn.Sequential(*layers), (torch.randn(32, 16),), {}, class_scores


class Policy(nn.Module):
    """An actor and a critic of two layers each, and PPO's clipped loss of a batch.

    In plain torch: the policies of stable_baselines3 leave a distribution behind in an attribute at each call, which is
    no part of a graph, so their steps run outside of a program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        self.critic = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(
        self, seen: torch.Tensor, actions: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, gain: torch.Tensor
    ) -> torch.Tensor:
        scores = self.actor(seen).log_softmax(-1)
        ratio = (scores.gather(1, actions[:, None])[:, 0] - old).exp()
        gained = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(scores.exp() * scores).sum(-1).mean()
        return 0.5 * (self.critic(seen)[:, 0] - gain).square().mean() - gained - 0.01 * entropy


def ppo() -> Made:
    """64 steps of an environment of eight numbers and four actions."""
    torch.manual_seed(0)
    old, advantage, gain = -torch.rand(64) - 1, torch.randn(64), torch.randn(64)
    inputs = (torch.randn(64, 8), torch.randint(0, 4, (64,)), old, advantage, gain)
    return Policy(), inputs, {}, lambda loss: loss


def update() -> Made:
    torch.manual_seed(0)
    return Tensors(), (), {}, lambda loss: loss


MADE: dict[str, Callable[[], Made]] = {
    "mlp": mlp,
    "ppo": ppo,
    "gpt2": MODELS["gpt2"],
    "update": update,
}


def adamw(module: nn.Module, fused: bool = True) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-4, fused=fused)


def plain_step(made: Made, compile: Callable[[nn.Module], Any], optimizer: Any, update: Step) -> Step:
    """A step as a user writes it."""
    module, args, kwargs, loss_fn = made
    model = compile(module)

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model(*args, **kwargs)).backward()
        update()

    return step


def bridge_step(made: Made) -> tuple[Any, Step]:
    """The compiled step, and a call of it."""
    module, args, kwargs, loss_fn = made
    compiled = bridge.compile_step(module, adamw(module), loss_fn)
    return compiled, lambda: compiled(kwargs or args)


def steps_of(name: str) -> tuple[Any, dict[str, Step]]:
    """The ways in which a model is trained, and the compiled step among them."""
    made = MADE[name]()

    def fresh() -> Made:
        return copy.deepcopy(made[:3]) + made[3:]  # type: ignore[return-value]

    compiled, call = bridge_step(fresh())
    steps: dict[str, Step] = {"bridge": call}
    given = fresh()
    optimizer = adamw(given[0])
    if name == "update":
        plain_step(given, lambda m: m, optimizer, optimizer.step)()
        return compiled, {**steps, "eager, fused update alone": optimizer.step}
    steps["eager, fused"] = plain_step(given, lambda m: m, optimizer, optimizer.step)
    given = fresh()
    optimizer = adamw(given[0])
    steps["inductor, fused"] = plain_step(given, torch.compile, optimizer, optimizer.step)
    given = fresh()
    optimizer = adamw(given[0], fused=False)
    steps["inductor, compiled"] = plain_step(given, torch.compile, optimizer, torch.compile(optimizer.step))
    return compiled, steps


def trained(step: Step) -> None:
    """Some steps, each with random numbers of its own."""
    for seed in range(STEPS):
        torch.manual_seed(seed)
        step()


def apart(one: nn.Module, other: nn.Module) -> float:
    """How far parameters are apart, by the largest element."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def differences(name: str) -> list[Record]:
    """How far the parameters are from eager's after some steps; of an update alone, how far both are from float64's."""
    made = MADE[name]()
    eager: Made = copy.deepcopy(made[:3]) + made[3:]  # type: ignore[assignment]
    exact: Made = copy.deepcopy(made[:3]) + made[3:]  # type: ignore[assignment]
    trained(bridge_step(made)[1])
    trained(eager_step(eager))
    found = [Measure("difference", (apart(made[0], eager[0]),), "", "bridge", name)]
    if name == "update":
        trained(eager_step((exact[0].double(), *exact[1:])))
        for target, (module, *_) in {"bridge": made, "eager": eager}.items():
            found.append(Measure("difference from float64", (apart(module, exact[0]),), "", target, name))
    return list(found)


def eager_step(made: Made) -> Step:
    optimizer = adamw(made[0], fused=False)
    return plain_step(made, lambda m: m, optimizer, optimizer.step)


def repeated(step: Step, times: int) -> Step:
    def run() -> None:
        for _ in range(times):
            step()

    return run


def measured(name: str, rounds: int) -> list[Record]:
    """All that is measured of one model."""
    records = differences(name)
    compiled, steps = steps_of(name)
    for step in steps.values():
        repeated(step, 3)()
    (graph,) = bridge.inspect(compiled).graphs
    copied = sum(event.bytes for event in compiled.ledger.select(kind=COPIED_BACK))
    records += [
        Measure("bytes copied back", (float(copied),), "bytes", "bridge", name),
        Measure("kernels called", (float(graph.kernel_calls),), "", "bridge", name),
        Measure("calls of ATen", (float(len(graph.callouts)),), "", "bridge", name),
    ]
    start = perf_counter()
    steps["bridge"]()
    times = max(1, round(SHORTEST / (perf_counter() - start)))
    readings = interleaved({target: repeated(step, times) for target, step in steps.items()}, rounds)
    records += [Measure("step", tuple(r / times for r in rs), "s", target, name) for target, rs in readings.items()]
    return [*records, *compiled.ledger]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"among {', '.join(MADE)}; all if none is named")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    for name in given.models:
        if name not in MADE:
            parser.error(f"{name}: there is no such model; there are {', '.join(MADE)}")
    if len(given.models) == 1 and given.to == RESULTS:
        parser.error(f"{RESULTS.name} holds all models: give another file with --to for one")
    if len(given.models) == 1:
        write(given.to, measured(given.models[0], given.rounds))
        return
    records: list[Record] = []
    for name in given.models or MADE:
        part = given.to.with_suffix(f".{name}.part")
        own = [sys.executable, "-m", "experiments.in_place_optimizer.run", name, "--to", str(part)]
        subprocess.run([*own, "--rounds", str(given.rounds)], check=True)
        records += read(part).records
        part.unlink()
    about = {"command": "python -m experiments.in_place_optimizer.run", **machine()}
    write(given.to, records, about)


if __name__ == "__main__":
    main()
