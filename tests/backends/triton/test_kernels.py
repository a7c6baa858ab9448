"""Every launcher gives what ATen gives on the CPU, with its first configuration: others differ in how fast they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from bridge.backends.triton.table import CONFIG, table
from bridge.ir.schema import defaults
from tests.backends.triton import attention, samples

SAMPLES = {**samples.SAMPLES, **attention.SAMPLES}
REFERENCES = {**samples.REFERENCES, **attention.REFERENCES}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL: Mapping[str, int] = dict.fromkeys(("TILE", "BLOCK", "COLUMNS", "INNER", "OWN", "STEP"), 16)
"""What the interpreter is given of a configuration: small tiles, so that small samples are cut."""

CLOSE = {torch.float32: (1e-5, 1e-5), torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 2e-2)}


def by_name(op: OpOverload, arguments: tuple[Any, ...]) -> dict[str, Any]:
    return {**defaults(op), **dict(zip(defaults(op), arguments))}


def launched(op: OpOverload, given: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    row = table()[op]
    named = {"x" if name == "self" else name: given[name] for name in row.parameters}
    return row.fn(**named, **({CONFIG: config} if config else {}))


def small(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: SMALL.get(name, value) if DEVICE == "cpu" else value for name, value in config.items()}


@pytest.mark.parametrize("op", SAMPLES, ids=str)
def test_a_launcher_gives_what_aten_gives(op: OpOverload) -> None:
    config = small(table()[op].configs[0])
    for arguments in SAMPLES[op]():
        given = by_name(op, arguments)
        wide = tree_map_only(torch.Tensor, wider, given)
        expected = REFERENCES[op](wide) if op in REFERENCES else op(**wide)
        found = launched(op, tree_map_only(torch.Tensor, lambda x: x.to(DEVICE), given), config)
        compare(tree_map_only(torch.Tensor, lambda x: x.cpu(), found), expected)


def wider(x: torch.Tensor) -> torch.Tensor:
    """ATen adds up some 16-bit numbers in 16 bits. A kernel does not."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def compare(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            if other is not None:
                compare(one, other)
        return
    rtol, atol = CLOSE.get(found.dtype, (None, None))
    is_wider = found.dtype != expected.dtype and wider(found).dtype == expected.dtype
    torch.testing.assert_close(
        found, expected.to(found.dtype) if is_wider else expected, rtol=rtol, atol=atol, equal_nan=True
    )


def test_every_row_has_samples() -> None:
    assert not set(table()) - set(SAMPLES)
