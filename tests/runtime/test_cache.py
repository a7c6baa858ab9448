"""What was built is kept, and never taken when it is damaged or meant for something else."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import bridge
from bridge.backends.tvm import build
from bridge.cli import app
from bridge.runtime.cache import MANIFEST, UNFINISHED, Cache


def folder(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_what_is_stored_is_fetched(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert not cache.fetch("key", tmp_path)
    cache.store("key", folder(tmp_path / "made", one="1", two="22"))
    into = folder(tmp_path / "into")
    assert cache.fetch("key", into)
    assert {path.name: path.read_text() for path in into.iterdir()} == {"one": "1", "two": "22"}
    assert not cache.fetch("another", into)
    assert cache.usage().entries == 1
    cache.clear()
    assert not cache.fetch("key", into)


DAMAGES = ("changed", "cut", "missing", "manifest cut", "manifest missing", "manifest of nothing", "manifest of a list")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_goes(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path / "cache")
    cache.store("key", folder(tmp_path / "made", one="some text"))
    entry = tmp_path / "cache" / "key"
    if damage.endswith("missing"):
        (entry / ("one" if damage == "missing" else MANIFEST)).unlink()
    else:
        file, text = {
            "changed": ("one", "some lies"),
            "cut": ("one", "some"),
            "manifest cut": (MANIFEST, '{"one'),
            "manifest of nothing": (MANIFEST, "{}"),
            "manifest of a list": (MANIFEST, "[1]"),
        }[damage]
        (entry / file).write_text(text)
    assert not cache.fetch("key", folder(tmp_path / "into"))
    cache.store("key", folder(tmp_path / "again", one="some text"))
    assert cache.fetch("key", tmp_path / "into")


def test_what_a_killed_writer_left_is_no_entry_and_is_swept_up(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    left = folder(root / f"{UNFINISHED}left", one="half")
    os.utime(left, (0, 0))
    cache = Cache(root)
    assert cache.usage().entries == 0
    cache.store("key", folder(tmp_path / "made", one="1"))
    assert not left.exists()


def test_the_oldest_make_room(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=1100)
    for number in range(3):
        cache.store(f"key{number}", folder(tmp_path / f"made{number}", one="x" * 250))
        os.utime(tmp_path / "cache" / f"key{number}", (number, number))
    assert cache.fetch("key0", folder(tmp_path / "into"))  # which makes it the one used last
    cache.store("key3", folder(tmp_path / "made3", one="x" * 250))
    assert cache.fetch("key0", tmp_path / "into")
    assert not cache.fetch("key1", tmp_path / "into")


def test_two_writers_of_one_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    made = [folder(tmp_path / f"made{n}", one="1") for n in range(8)]
    threads = [threading.Thread(target=cache.store, args=("key", path)) for path in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == ["key"]
    assert cache.fetch("key", folder(tmp_path / "into"))


def test_a_place_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    cache.store("key", folder(tmp_path / "made", one="1"))
    assert not cache.fetch("key", folder(tmp_path / "into"))
    assert cache.usage().entries == 0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 3).sin()


def test_a_program_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path))
    built = []
    answer = build._answer
    monkeypatch.setattr(build, "_answer", lambda *args: built.append(args) or answer(*args))
    x = torch.randn(7, requires_grad=True)
    for times in (2, 2, 4):  # a forward and a backward; from the cache; other options
        torch._dynamo.reset()
        compiled = bridge.compile(scaled, options={"cache": times == 2})
        torch.testing.assert_close(compiled(x), scaled(x))
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(gradient, 3 * (x * 3).cos())
        assert len(built) == times
        assert all(graph.kernel_calls for graph in bridge.inspect(compiled).graphs)
    shown = CliRunner().invoke(app, ["cache", "--clear"])
    assert "2 programs" in shown.stdout
    assert "0 programs" in CliRunner().invoke(app, ["cache"]).stdout
