"""Symbols are told from values that hold them, and from no others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bridge.ir.sizes import solved, told_together


def test_a_bool_that_was_read_tells_its_symbol() -> None:
    held = ShapeEnv().create_unbacked_symbool()
    (symbol,) = held.node.expr.free_symbols
    assert list(solved([("flag", held)], [])) == [(str(symbol), "int(flag)")]


def test_that_a_number_is_one_tells_no_number() -> None:
    n = ShapeEnv().create_unbacked_symint()
    assert list(solved([("flag", n == 1)], [])) == []
    assert list(solved([("flag", n == 1), ("twice", 2 * n)], [])) == [(str(n), "(twice - 0)//2")]


def sized(env: ShapeEnv, sizes: Sequence[torch.SymInt]) -> list[tuple[str, torch.Tensor]]:
    with FakeTensorMode(shape_env=env):
        return [(f"t{at}", torch.empty(size)) for at, size in enumerate(sizes)]


def test_symbols_that_are_told_together_may_be_anything() -> None:
    env = ShapeEnv()
    n, u, v = (env.create_unbacked_symint() for _ in range(3))

    def shown(*sizes: torch.SymInt) -> list[tuple[str, torch.Tensor]]:
        return sized(env, sizes)

    assert list(told_together(shown(n + u + v), [str(n)])) == [str(v)]
    assert list(told_together(shown(n + u + v, 2 * u + 2 * v), [str(n)])) == [str(v)]
    assert list(told_together(shown(n + u), [str(n)])) == []
    assert list(told_together(shown(n + u + v), [str(n), str(v)])) == []


def test_symbols_that_are_told_in_two_ways_stay_unknown() -> None:
    env = ShapeEnv()
    u, v = (env.create_unbacked_symint() for _ in range(2))
    assert list(told_together(sized(env, (u + v, u + 3 * v)), [])) == []
