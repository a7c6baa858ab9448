"""The names of torch and TVM that the bridge uses: are they there, and as they were recorded for this series?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from bridge.doctor.check import Check, State
from bridge.signatures import Found, Sources, fingerprint, refuses
from bridge.touched import TORCH, Touched, numbers
from bridge.versions import installed

RECORDED = Path(__file__).parents[1] / "fingerprints.json"
READ_ON = "run the tests of capture (tests/frontends/torch); adapt frontends/torch/adapters to what changed"


def torch_names() -> Iterator[Check]:
    """Each private name of torch's."""
    sources, series = _installed("torch")
    if sources is None:
        yield Check("torch", "private names", State.NOTE, "not looked at: torch is not installed")
        return
    known = recorded()["torch"].get(series)
    if known is None:
        series = max(recorded()["torch"], key=numbers)
        known = recorded()["torch"][series]
    for touched in TORCH:
        yield checked(touched, touched.found(sources), known.get(touched.name), series)


def tvm_names() -> Iterator[Check]:
    """TVM's names in one line, and a line for each that is not as recorded."""
    sources, series = _installed("tvm")
    if sources is None:
        yield Check("tvm", "names", State.NOTE, "not looked at: apache-tvm is not installed")
        return
    newest = max(recorded()["tvm"], key=numbers)
    known = recorded()["tvm"].get(series, recorded()["tvm"][newest])
    found = {name: sources.find(name) for name in known}
    gone = [name for name, one in found.items() if one is None and recorded()["tvm"][newest].get(name)]
    changed = [name for name, one in found.items() if one is not None and one.text != known[name]]
    for name in gone:
        yield Check("tvm", name, State.WRONG, "it is not there", "install the TVM that `packages` names")
    for name in changed:
        detail = f"it is {_short(getattr(found[name], 'text', ''))}, and was {_short(known[name])} in {series}"
        yield Check("tvm", name, State.NOTE, detail, "run tests/backends/tvm; adapt backends/tvm/compat.py")
    as_recorded = len(known) - len(gone) - len(changed)
    yield Check("tvm", "names", State.OK, f"{as_recorded} of {len(known)} are as recorded for {series}")


@cache
def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """package → series → name → what it was there. Written by `experiments/api_instability/probe.py`."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def checked(touched: Touched, found: Found | None, known: str | None, series: str) -> Check:
    if found is None:
        state = State.NOTE if touched.without else State.WRONG
        lost = f"lost without it: {touched.without}" if touched.without else "nothing is compiled without it"
        return Check("torch", touched.name, state, f"it is not there; {lost}", READ_ON)
    refused = refuses(found, call) if (call := touched.call(series)) else None
    if refused is not None:
        state = State.NOTE if touched.without else State.WRONG
        return Check("torch", touched.name, state, f"it cannot be called as {call}: {refused}", READ_ON)
    if known is None:
        remedy = "read the wheel of each series with experiments/api_instability/probe.py --keep --record"
        return Check("torch", touched.name, State.NOTE, f"{found.digest} is not recorded for {series}", remedy)
    if found.text != known:
        detail = f"{found.digest}: it is {_short(found.text)}, and was {_short(known)} in {series}"
        return Check("torch", touched.name, State.NOTE, detail, READ_ON)
    return Check("torch", touched.name, State.OK, f"{fingerprint(found.text)}, as recorded for {series}")


def _installed(package: str) -> tuple[Sources | None, str]:
    """The sources of an installed package, and its series."""
    spec = find_spec(package)  # of a package of the first level, which imports nothing
    version = installed(package)
    if spec is None or not spec.submodule_search_locations or version is None:
        return None, ""
    return Sources(Path(spec.submodule_search_locations[0]).parent), ".".join(version.split(".")[:2])


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..." if text else "not there"
