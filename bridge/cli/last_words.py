"""What a process said last: the error of its traceback, and the line of the model that was running."""

from __future__ import annotations

import re
from pathlib import Path

BEGIN = "Traceback (most recent call last):"
EXPLANATION = "  Explanation: "
"""Dynamo's errors have a title, and say on this line what is wrong."""

_FRAME = re.compile(r'^ +File "(?P<file>.+)", line (?P<line>\d+)(?P<name>, in \S+)?$')
_BRIDGE = str(Path(__file__).resolve().parents[1])


def reason(said: str, code: int) -> tuple[str, str]:
    """The error that ended a process, and the innermost line that is neither a package's nor ours, from its stderr.

    code: how the process ended. If it is not by an uncaught error, it is the last line, and no line of anybody's.
    """
    lines = said.splitlines()
    begins = [position for position, line in enumerate(lines) if line == BEGIN and code == 1]
    after = lines[begins[-1] + 1 :] if begins else []
    error = next((position for position, line in enumerate(after) if line and not line.startswith(" ")), None)
    if error is None:
        return next((line.strip() for line in reversed(lines) if line.strip()), ""), ""
    explanations = [line.removeprefix(EXPLANATION) for line in after[error:] if line.startswith(EXPLANATION)]
    return ": ".join([after[error], *explanations[:1]]), _innermost(after)


def _innermost(lines: list[str]) -> str:
    """The last frame of a user's own, as events name lines."""
    for position in reversed(range(len(lines) - 1)):
        frame = _FRAME.match(lines[position])
        if frame is not None and not _is_others(frame["file"]):
            function = (frame["name"] or "").removeprefix(",")  # what cannot be parsed is in none
            return f"{Path(frame['file']).name}:{frame['line']}{function}: {lines[position + 1].strip()}"
    return ""


def _is_others(file: str) -> bool:
    return file.startswith((_BRIDGE, "<")) or "site-packages" in file or "lib/python" in file
