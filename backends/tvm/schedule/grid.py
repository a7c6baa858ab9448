"""How the elements of a nest are shared out among the blocks and threads of a GPU.

A thread has a *patch*: neighbours along the axis that is contiguous in memory, so that it reads and writes 16 bytes at
once. `across` threads share the columns of a row, `beside` rows are in the hands of one block. Where the columns are
contiguous, neighbouring threads take neighbouring columns; where the rows are, neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.backends.tvm.index import Axis, Index, below, product
from bridge.backends.tvm.scalar import Guarded, Load, Scalar, inside, walk
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.vector import width

WARP = 32

BLOCK = 128
"""Threads of a block, where the columns of a row do not ask for more."""

MOST = 1024
"""Threads of the largest block."""

OWN = 16
"""Elements of a row that a thread takes at first, and up to twice as many where one warp is then enough for a row."""

MANY = 1 << 18
"""Patches from which on each thread does two of 8 bytes, rather than one."""

LARGE = 8
"""A value counts as large if the largest is at most so many times its size."""

LEAST, BLOCKS = 4, 64
"""Rows beside one another at least, and blocks for which more of them wait."""

SHORT = 8
"""Columns up to which one thread walks over them alone."""


@dataclass(frozen=True)
class Grid:
    """nest: with the patch split off as the last axis of its group, if there is one.

    patches: how many patches a thread does one after the other, where there are no columns.
    trips: how many times a thread goes along the columns, None where that is known at run time only.
    """

    nest: Nest
    patch: Axis | None
    in_rows: bool
    across: int
    beside: int
    patches: int = 1

    @property
    def width(self) -> int:
        return 1 if self.patch is None else self.patch.extent.constant or 1

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The axes that are shared out among blocks and, up to `beside`, among the threads of one."""
        return tuple(a for a in self.nest.rows if a is not self.patch)

    @property
    def cols(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.nest.cols if a is not self.patch)

    @property
    def groups(self) -> Index:
        """Rows, or patches of rows."""
        return product(a.extent for a in self.rows)

    @property
    def columns(self) -> Index:
        """Columns, or patches of columns."""
        return product(a.extent for a in self.cols)

    @property
    def trips(self) -> int | None:
        columns = self.columns.constant
        return None if columns is None else -(-columns // self.across)

    @property
    def threads(self) -> int:
        return self.across * self.beside


def gridded(nest: Nest) -> Grid:
    """The nest with a grid that suits its sizes and the order of its memory."""
    axis = max((*nest.rows, *nest.cols), key=lambda a: _walked(nest, a), default=None)
    rows, cols = (tuple(sorted(axes, key=lambda a: a is axis)) for axes in (nest.rows, nest.cols))
    in_rows = axis is None or axis in nest.rows
    nest, patch = _patched(Nest(rows, cols, nest.reductions, nest.stores), axis)
    grid = Grid(nest, patch, in_rows, 1, BLOCK)
    groups, columns = grid.groups.constant, grid.columns.constant
    if not nest.cols and _is_narrow(nest) and groups is not None and groups >= MANY:
        return Grid(nest, patch, in_rows, 1, BLOCK, 2)
    if not nest.cols or (columns is not None and columns <= SHORT // (1 if in_rows else grid.width)):
        return Grid(nest, patch, in_rows, 1, BLOCK if groups is None else min(BLOCK, _power(groups)))
    if in_rows:
        return Grid(nest, patch, in_rows, *_by_rows(groups, columns))
    across = _across(columns, grid.width)
    if groups is None:
        return Grid(nest, patch, in_rows, max(across, WARP), 1)
    beside = max(min(BLOCK // across, _power(groups)), WARP // across, 1)
    return Grid(nest, patch, in_rows, across, beside)


def _is_narrow(nest: Nest) -> bool:
    """Whether no element that is read or written in patches takes more than two bytes, so that 8 make a patch."""
    loads = unconditional(nest.scalars)
    whole = max((load.value.numel.constant or 0 for load in loads), default=0)
    moved = [load.dtype for load in loads if load.value.numel == whole] + [store.value.dtype for store in nest.stores]
    return all(width(dtype) <= 2 for dtype in moved)


def _walked(nest: Nest, axis: Axis) -> tuple[int, bool, int]:
    """How much is contiguous along an axis, of what is large: a few numbers stay in the cache in whatever order."""
    places = [(store.value, store.offset) for store in nest.stores]
    places += [(n.value, n.value.offset(n.index)) for root in nest.scalars for n in walk(root) if isinstance(n, Load)]
    places = list(dict.fromkeys(places))
    most = max((value.numel.constant or 0 for value, _ in places), default=0)
    large = [offset for value, offset in places if (value.numel.constant or most) * LARGE >= most]
    steps = [offset.coefficient(axis) for offset in large]
    score = sum(2 if step == 1 else 0 if step == 0 else -1 for step in steps)
    extent = axis.extent.constant
    return (
        score - 4 * (extent is not None and extent < 4),
        axis in (nest.cols[-1:] or nest.rows[-1:]),
        extent or 1 << 20,
    )


def _across(columns: int | None, width: int) -> int:
    """How many threads share contiguous columns."""
    if columns is None:
        return 2 * BLOCK
    wanted = min(MOST, _power(-(-columns * width // OWN)))
    return min(wanted, WARP) if columns * width <= 2 * OWN * WARP else wanted


def _by_rows(groups: int | None, columns: int | None) -> tuple[int, int]:
    """Threads across columns that are not contiguous, and rows beside one another that are."""
    if groups is None:
        return 8, 1
    beside = min(WARP, _power(groups))
    while beside > LEAST and groups < BLOCKS * beside:
        beside //= 2
    if columns is None:
        return 8, beside
    if groups >= MOST * 128 and columns <= 4 * OWN:
        return 1, BLOCK
    return min(_power(-(-columns // 4)), 4 * BLOCK // beside, WARP if groups > BLOCKS * beside else BLOCK), beside


def _power(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()


def _patched(nest: Nest, axis: Axis | None) -> tuple[Nest, Axis | None]:
    """The nest with the axis in patches of as many elements as memory is moved by, if any can be."""
    extent = axis.extent.constant if axis is not None else None
    for size in (4, 2):
        if axis is None or not extent or extent % size:
            continue
        outer, patch = Axis(f"{axis.name}o", Index.of(extent // size)), Axis(f"{axis.name}p", Index.of(size))
        into = {axis: Index.of(outer) * size + Index.of(patch)}
        rows, cols = (tuple(b for a in axes for b in ((outer, patch) if a is axis else (a,)))
                      for axes in (nest.rows, nest.cols))  # fmt: skip
        split = nest.rewritten(into, rows, cols)
        offsets = [load.value.offset(load.index) for load in unconditional(split.scalars)]
        if any(is_whole(offset, patch) for offset in [*offsets, *(s.offset for s in split.stores)]):
            return split, patch
    return nest, None


def is_whole(offset: Index, patch: Axis) -> bool:
    """Whether the elements of a patch lie next to one another, the first on a multiple of their number."""
    if offset.coefficient(patch) != 1:
        return False
    width = patch.extent.constant or 1
    return all(factor % width == 0 for monomial, factor in offset.terms.items() if monomial != (patch,))


def _safe(branch: Scalar) -> list[Load]:
    """The loads of a guarded branch that are within bounds anyway, as those of a matrix that is cut and padded."""
    loads = [node for node in walk(branch) if isinstance(node, Load)]
    return [load for load in loads if all(map(below, load.index, load.value.shape))]


def unconditional(roots: Sequence[Scalar]) -> list[Load]:
    """The loads that can be made whatever the data: those under no guard, and those that are within bounds without.

    Those inside indices come first.
    """
    found: dict[tuple, Load] = {}
    seen: set[int] = set()
    pending: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots)]
    while pending:
        node, done = pending.pop()
        if done:
            assert isinstance(node, Load)
            found.setdefault((node.value, node.index), node)
        elif id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Load):
                pending.append((node, True))
            needs = [*node.operands, *inside(node)]
            if isinstance(node, Guarded):
                needs = [node.condition, *(load for branch in (node.then, node.otherwise) for load in _safe(branch))]
            pending.extend((need, False) for need in reversed(needs))
    return list(found.values())
