"""The list of upstream faults is true: each is there, is worked around where it says, and is noticed once mended."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from experiments.maintenance.upstream import FAULTS, ROOT, UPSTREAM, Fault, tried

NAMES = [fault.name for fault in UPSTREAM]


def test_every_script_is_in_the_list() -> None:
    scripts = {path.stem for path in FAULTS.glob("*.py")} - {"__init__"}
    assert scripts == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("fault", UPSTREAM, ids=NAMES)
def test_it_is_worked_around_where_it_says(fault: Fault) -> None:
    assert fault.line in (ROOT / fault.file).read_text(encoding="utf-8")
    assert "Seen:" in fault.told
    assert "Right:" in fault.told


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="an upstream fault; where it is mended, take the work-around away")
@pytest.mark.parametrize("fault", UPSTREAM, ids=NAMES)
def test_it_is_mended(fault: Fault) -> None:
    if fault.only and not version(fault.package).startswith(fault.only):
        pytest.xfail(f"only with {fault.package} {fault.only}")
    seen = tried(fault)
    assert seen.outcome == "mended", seen.said
