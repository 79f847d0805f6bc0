"""Hook of mkdocs: tables and pictures that fit, and links to the file that a page is made from."""

import html
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))
from pages import ROOT, source_of

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
CELL = re.compile(r"<td")
PICTURE = re.compile(r'<img (?:alt="[^"]*" )?src="([^"]+)"[^>]*/?>')
WIDE_COLUMNS = 9
"""Tables from so many columns on have a smaller print."""
WIDE_PAGES = ("index.md", "papers.md", "results/")
"""Pages with wide tables, which take the place of the list of contents."""


def on_page_context(
    context: dict[str, Any], *, page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """Let wide pages use the margins, and give each page the path of its own file."""
    if page.file.src_uri.startswith(WIDE_PAGES):
        page.meta.setdefault("hide", ["toc"])
    source = source_of(page.file.src_uri)
    if config.repo_url and source.is_relative_to(ROOT):
        place = source.relative_to(ROOT).as_posix()
        page.edit_url = f"{config.repo_url.rstrip('/')}/edit/main/{place}"
    return context


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name the column in each cell, for narrow screens, and link pictures to themselves."""
    content = TABLE.sub(lambda found: labelled(found[0]), content)
    return PICTURE.sub(lambda found: f'<a href="{found[1]}">{found[0]}</a>', content)


def labelled(table: str) -> str:
    """A table whose cells say which column they stand in."""
    headings = [re.sub(r"<[^>]+>", "", heading) for heading in HEADING.findall(table)]
    names = [html.escape(html.unescape(heading), quote=True) for heading in headings]

    def row(found: re.Match[str]) -> str:
        labels = iter(names)
        return CELL.sub(lambda _: f'<td data-label="{next(labels, "")}"', found[0])

    table = ROW.sub(row, table)
    return table.replace("<table>", "<table data-wide>", 1) if len(names) >= WIDE_COLUMNS else table
