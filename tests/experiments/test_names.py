"""A model that there is not is told before results are touched."""

from __future__ import annotations

from types import ModuleType

import pytest
import typer

from experiments.dynamic_shape import run as dynamic_shape
from experiments.in_place_optimizer import run as in_place_optimizer


def test_dynamic_shape_knows_its_models() -> None:
    before = dynamic_shape.RESULTS.read_bytes()
    with pytest.raises(typer.BadParameter, match="nosuch"):
        dynamic_shape.main(["nosuch"])
    assert dynamic_shape.RESULTS.read_bytes() == before


@pytest.mark.parametrize(("argument", "words"), [("nosuch", "no such model"), ("mlp", "holds all models")])
def test_the_optimizer_in_place_keeps_its_results(
    argument: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("it was to be told before")

    module: ModuleType = in_place_optimizer
    monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr("sys.argv", ["run.py", argument])
    with pytest.raises(SystemExit):
        module.main()
    assert words in capsys.readouterr().err
