"""Hooks of mkdocs: adds pages that are made from the sources, and makes links work in the site.

Pages of the root of the checkout (README.md, ARCHITECTURE.md ...) become pages of the site, and so
do the public headers. Links are written for readers of the checkout; what they name is replaced by
its page, and the link is dropped where the site has none.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import headers

ROOT = Path(__file__).resolve().parent.parent
# Pages of the root, and where the site has them.
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def site_path(path: str) -> str:
    """Return the page of the site that shows a file of the checkout; empty if none does."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    header = path.removeprefix("include/penstock/")
    if header in headers.HEADERS:
        return f"reference/cpp/{headers.page_name(header)}"
    return path.removeprefix("docs/") if path.startswith("docs/") else ""


def with_links(text: str, source: str, page: str) -> str:
    """Return the text of `source`, a file of the checkout, with its links as `page` wants them."""

    def replaced(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        file, separator, anchor = target.partition("#")
        named = os.path.normpath(os.path.join(os.path.dirname(source), file))
        if not (ROOT / named).exists():
            return match[0]  # --strict fails at it
        shown = site_path(named)
        if not shown:
            return label
        relative = os.path.relpath(shown, os.path.dirname(page) or ".")
        return f"{mark}[{label}]({relative}{separator}{anchor})"

    parts = FENCE.split(text)  # text, mark, code, mark, text ...
    for index in range(0, len(parts), 4):
        parts[index] = LINK.sub(replaced, parts[index])
    return "".join(parts)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for name, page in ROOT_PAGES.items():
        text = with_links((ROOT / name).read_text(), name, page)
        files.append(File.generated(config, page, content=text))
    folder = "reference/cpp/"
    files.append(File.generated(config, f"{folder}index.md", content=headers.index()))
    for header in headers.HEADERS:
        place = folder + headers.page_name(header)
        files.append(File.generated(config, place, content=headers.page(header)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace links to files of the checkout."""
    if page.file.generated_by is not None:
        return markdown
    return with_links(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
