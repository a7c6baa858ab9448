"""All checks in order: the packages, the machine, the private names, and each way of running."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.doctor.check import Check, State
from bridge.doctor.machine import machine
from bridge.doctor.names import torch_names, tvm_names
from bridge.doctor.packages import packages
from bridge.doctor.routes import routes


def examine() -> Iterator[Check]:
    """Look at everything. Nothing of torch's or TVM's is imported in this process, and nothing raises."""
    found = [*packages(), *machine()]
    yield from found
    yield from torch_names()
    yield from tvm_names()
    yield from routes(broken={check.name for check in found if check.state is State.WRONG})
