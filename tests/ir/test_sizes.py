"""Symbols are told from values that hold them, and from no others."""

from __future__ import annotations

from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bridge.ir.sizes import solved


def test_a_bool_that_was_read_tells_its_symbol() -> None:
    held = ShapeEnv().create_unbacked_symbool()
    (symbol,) = held.node.expr.free_symbols
    assert list(solved([("flag", held)], [])) == [(str(symbol), "int(flag)")]


def test_that_a_number_is_one_tells_no_number() -> None:
    n = ShapeEnv().create_unbacked_symint()
    assert list(solved([("flag", n == 1)], [])) == []
    assert list(solved([("flag", n == 1), ("twice", 2 * n)], [])) == [(str(n), "(twice - 0)//2")]
