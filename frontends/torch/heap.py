"""What the garbage collector need not look at while something is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def set_aside() -> Iterator[None]:
    """Within, the collector leaves alone what was there before: torch's modules, the user's model and its data.

    A compiler makes millions of objects, and each whole collection would walk through these hundreds of thousands
    again: four in the capture of a GPT-2, a second together. What is made within is collected as ever. Where the user
    has set objects aside himself, or switched the collector off, nothing is changed; what another thread sets aside
    meanwhile is given back too.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
