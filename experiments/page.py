"""A page of HTML from the Markdown that experiments write: headings, paragraphs and tables, and nothing else."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }} td, th {{ border: 1px solid #bbb; padding: .2rem .6rem;
text-align: left; vertical-align: top }} th {{ background: #eee }} code {{ background: #f3f3f3 }}
</style><h1>{title}</h1>
"""


def page(title: str, markdown: str) -> str:
    """The whole page."""
    blocks = re.split(r"\n{2,}", markdown.strip())
    return _HEAD.format(title=escape(title)) + "\n".join(map(_block, blocks)) + "\n"


def between(file: Path, begin: str, end: str, made: str) -> None:
    """Write what is made into a file, between two lines of it."""
    text = file.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    file.write_text(f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def held_between(file: Path, begin: str, end: str) -> str:
    """What stands in a file between the two lines."""
    return file.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()


def _block(block: str) -> str:
    heading = re.match(r"(#+) (.*)", block)
    if heading:
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    if block.startswith("|"):
        head, _, *rows = block.splitlines()
        return f"<table>{_row(head, 'th')}{''.join(_row(row, 'td') for row in rows)}</table>"
    return f"<p>{_inline(block)}</p>"


def _row(line: str, cell: str) -> str:
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return "<tr>" + "".join(f"<{cell}>{_inline(text.strip())}</{cell}>" for text in cells) + "</tr>"


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r'<a href="\2">\1</a>', text)
