"""AdamW in one launch does what torch's does, step after step."""

from __future__ import annotations

import pytest
import torch

from bridge.backends.triton.kernels.optimizer import adamw, blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("dtype", "maximize"), [(torch.float32, False), (torch.bfloat16, True)])
def test_steps_are_torchs(dtype: torch.dtype, maximize: bool) -> None:
    params = [torch.randn(size, device=DEVICE).to(dtype) for size in ((3000,), (5, 7), ())]
    theirs = [torch.nn.Parameter(p.float()) for p in params]
    rules = {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1, "maximize": maximize}
    optimizer = torch.optim.AdamW(theirs, lr=0.02, **rules)  # type: ignore[arg-type]
    grads = [torch.empty_like(p) for p in params]
    moments = [[torch.zeros_like(p, dtype=torch.float32) for p in params] for _ in range(2)]
    held = blocks(params, grads, *moments)
    lr = torch.tensor(0.02, device=DEVICE)
    for count in range(1, 4):
        for grad, their in zip(grads, theirs):
            grad.copy_(torch.randn(grad.shape))
            their.grad = grad.float()
        optimizer.step()
        adamw(held, torch.tensor(count, device=DEVICE), lr, **rules)  # type: ignore[arg-type]
    close = 1e-5 if dtype == torch.float32 else 2e-2
    for ours, their, first in zip(params, theirs, moments[0]):
        torch.testing.assert_close(ours.float(), their.detach(), rtol=close, atol=close)
        torch.testing.assert_close(first, optimizer.state[their]["exp_avg"])


def test_what_does_not_lie_compactly_is_an_error() -> None:
    x = torch.zeros(4, 6, device=DEVICE).t()
    with pytest.raises(ValueError, match="compactly"):
        blocks([x], [x], [x], [x])
    with pytest.raises(ValueError, match="one floating type"):
        blocks([x.t(), x.t().half()], [x.t()] * 2, [x.t()] * 2, [x.t()] * 2)
