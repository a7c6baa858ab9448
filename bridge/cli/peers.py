"""Ask other compilers that are installed here which overloads they have by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bridge.ledger import PeerAnswer

Has = Callable[[str], bool]


def ask(ops: Iterable[str]) -> list[PeerAnswer]:
    """An answer for each op from each peer; one with no op from a peer that cannot be asked."""
    ops = sorted(set(ops))
    answers: list[PeerAnswer] = []
    for name, peer in PEERS.items():
        try:
            detail, has = peer()
        except (ImportError, AttributeError) as error:  # not installed, or moved
            answers.append(PeerAnswer(name, "", False, f"{type(error).__name__}: {error}"))
            continue
        answers += [PeerAnswer(name, op, has(op), detail) for op in ops]
    return answers


def _bridge() -> tuple[str, Has]:
    """Ourselves: the table of rows, and what is called from a library by choice."""
    import torch

    import bridge
    from bridge.backends.library import VENDOR
    from bridge.backends.tvm.table import table

    def has(op: str) -> bool:
        return any(
            name in table() or name in VENDOR or torch.Tag.nondeterministic_seeded in getattr(name, "tags", ())
            for name in _names(op)
        )

    return f"bridge {bridge.__version__}: has a row, or calls a library", has


def _tvm() -> tuple[str, Has]:
    """Relax's importer of exported programs, which takes "add.Tensor" for aten.add.Tensor.

    It has torch take apart first what the core ops of ATen can say, which counts as had, whatever comes of it.
    """
    import torch
    import tvm
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    names = ExportedProgramImporter().create_convert_map()
    apart = torch.export.default_decompositions()

    def has(op: str) -> bool:
        return op.removeprefix("aten.") in names or any(overload in apart for overload in _names(op))

    return f"TVM {tvm.__version__}: has a converter, or torch takes it apart before", has


def _inductor() -> tuple[str, Has]:
    """Inductor, which calls ATen for the overloads in its list of fallbacks."""
    import torch
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.lowering import fallbacks, lowerings

    written = {*lowerings, *select_decomp_table()}

    def has(op: str) -> bool:
        names = _names(op)
        return any(name in written for name in names) and not any(name in fallbacks for name in names)

    return f"torch {torch.__version__}: has a lowering or a decomposition, and is not in the list of fallbacks", has


def _onnx() -> tuple[str, Has]:
    import onnxscript  # type: ignore[import-not-found]
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    known = ONNXRegistry.from_torchlib().is_registered
    return f"onnxscript {onnxscript.__version__}: is registered", lambda op: any(map(known, _names(op)))


def _names(op: str) -> list[Any]:
    """The overload of this name, as a graph holds it, and what it is an overload of; [] if torch has none such."""
    import torch

    space, _, rest = op.partition(".")
    packet, _, overload = rest.partition(".")
    if not packet:
        found = getattr(torch.ops.higher_order, op, None)
        return [] if found is None else [found]
    parent = getattr(getattr(torch.ops, space), packet, None)
    found = getattr(parent, overload, None)
    return [] if found is None else [found, parent]


PEERS: dict[str, Callable[[], tuple[str, Has]]] = {
    "bridge": _bridge,
    "tvm.relax.frontend.torch": _tvm,
    "torch._inductor": _inductor,
    "torch.onnx": _onnx,
}
