"""Results that share memory come back as eager gives them: the same values, flags, sharing and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bridge


def view_under_no_grad(y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return y[:4]


RESULTS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "itself and detached": lambda x, y: (y, y.detach()),
    "detached and itself": lambda x, y: (y.detach(), y),
    "two slices": lambda x, y: (y[:3], y[3:]),
    "two slices and detached": lambda x, y: (y[:3], y[3:], y.detach()),
    "slice and slice of detached": lambda x, y: (y[:3], y.detach()[3:]),
    "twice, detached, slice of detached": lambda x, y: (y, y, y.detach(), y.detach()[1:]),
    "one view": lambda x, y: (y.view(-1, 1),),
    "detached alone": lambda x, y: (y.detach(),),
    "slices of detached": lambda x, y: (y.detach()[:3], y.detach()[3:], y.sum()),
    "input": lambda x, y: (x, y),
    "view of input": lambda x, y: (x[:3], y),
    "detached input": lambda x, y: (x.detach(), y),
    "view of detached input": lambda x, y: (x.detach()[:3], y),
    "view under no_grad": lambda x, y: (y[2:], view_under_no_grad(y)),
    "no gradient by type": lambda x, y: (y.argmax(), y > 0, y.sum()),
}  # type: ignore[assignment]


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_eagers(name: str, requires_grad: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return RESULTS[name](x, x.cos())  # type: ignore[call-arg]

    values = torch.randn(7)
    given, reference = (values.clone().requires_grad_(requires_grad) for _ in range(2))
    compiled = bridge.compile(program, "eager")
    got, expected = compiled(given), program(reference)
    assert [torch.equal(a, b) for a, b in zip(got, expected)] == [True] * len(expected)
    assert [a.requires_grad for a in got] == [b.requires_grad for b in expected]
    assert sharing(got, given) == sharing(expected, reference)
    if requires_grad and any(a.requires_grad for a in expected):
        for results in (got, expected):
            sum(t.sum() * (n + 1) for n, t in enumerate(results) if t.requires_grad).backward()  # type: ignore[union-attr]
        assert (given.grad is None) == (reference.grad is None)
        assert given.grad is None or torch.equal(given.grad, reference.grad)  # type: ignore[arg-type]


def sharing(results: tuple[torch.Tensor, ...], given: torch.Tensor) -> list[list[bool]]:
    """Which of the results and the input share memory with which."""
    memory = [t.untyped_storage().data_ptr() for t in (*results, given)]
    return [[one == other for other in memory] for one in memory]


def test_what_cannot_be_captured_rightly_is_left_out_and_told() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.cos()
        return y[2:], view_under_no_grad(y)

    compiled = bridge.compile(program, "eager")
    compiled(torch.randn(7, requires_grad=True))
    (event,) = compiled.ledger.select(kind="uncaptured")
    assert "no_grad" in event.detail
    assert event.backend == "eager"
    assert compiled.placement == {"forward": {"generated": 0, "library": 0, "fallback": 0, "uncaptured": event.count}}


def test_a_gradient_between_results_is_told() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = x.sin()
        return hidden, hidden.exp()

    compiled = bridge.compile(program, "eager")
    compiled(torch.randn(3, requires_grad=True))
    (event,) = compiled.ledger.select(kind="gradient between results")
    assert "exp is computed from sin" in event.detail

    apart = bridge.compile(lambda x: (x.sin(), x.exp()), "eager")
    apart(torch.randn(3, requires_grad=True))
    assert not apart.ledger.select(kind="gradient between results")
