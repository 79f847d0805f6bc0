"""Hook of mkdocs: README.md as home, and the files outside of docs/ that pages link to."""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOME, CONTENTS, OUTSIDE = "index.md", "contents.md", "files"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<target>[^)#\s]+)(?P<anchor>(?:#[^)]*)?)\)")


def source_of(page: str) -> Path:
    """File that a page of the site is made from."""
    if page.startswith(f"{OUTSIDE}/"):
        return ROOT / page.removeprefix(f"{OUTSIDE}/")
    return {HOME: ROOT / "README.md", CONTENTS: DOCS / "README.md"}.get(page, DOCS / page)


def place_of(target: Path) -> str | None:
    """Path in the site's sources of a file of the repository; None for other paths."""
    if not target.is_file() or ROOT not in target.parents:
        return None
    for page in (HOME, CONTENTS):
        if target == source_of(page):
            return page
    if DOCS in target.parents:
        return target.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add README.md as home, the list of docs/README.md, and the files linked to."""
    readme = files.get_file_from_path("README.md")
    if readme is not None:
        files.remove(readme)
    for page in (HOME, CONTENTS):
        files.append(File.generated(config, page, abs_src_path=str(source_of(page))))
    pages = list(files.documentation_pages())
    for file in pages:  # and the pages among what is added
        source = source_of(file.src_uri)
        for link in LINK.finditer(source.read_text(encoding="utf-8")):
            linked = (source.parent / link["target"]).resolve()
            place = place_of(linked)
            if place is not None and files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(linked)))
                if linked.suffix == ".md":
                    pages.append(File.generated(config, place, abs_src_path=str(linked)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point relative links to their files in the site; of folders only the names stay."""
    source, folder = source_of(page.file.src_uri), PurePosixPath(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        linked = (source.parent / link["target"]).resolve()
        place = place_of(linked)
        if place is not None:
            return f"[{link['text']}]({os.path.relpath(place, folder)}{link['anchor']})"
        return link["text"] if linked.is_dir() and ROOT in linked.parents else link[0]

    return LINK.sub(moved, markdown)
