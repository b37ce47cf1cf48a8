"""Hooks of MkDocs, which builds the site: files outside docs/ are included, fences lose our notes.

A page of the repository links files outside docs/ by their relative path. In the site each of these is a page
below ``repository/``: a Markdown file as it is, any other file as a code block, a folder as a list.
"""

from __future__ import annotations

import posixpath
import re
from logging import getLogger
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, InclusionLevel

from docs.parts.api import EXTENDING
from docs.parts.api import page as api_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = [
    "Outsiders",
    "foreign",
    "on_files",
    "on_page_markdown",
    "on_post_page",
    "relinked",
    "titled",
    "unescaped",
]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
OUTSIDE: Final = "repository/"
FENCE: Final = re.compile(r"^(?P<ticks> *```)(?P<language>\w+)(?P<notes>[^\n]*)$", re.MULTILINE)
BLOCK: Final = re.compile(r"(^ *```\w.*?^ *```$)", re.DOTALL | re.MULTILINE)
ROW: Final = re.compile(r"^\|.*\|$", re.MULTILINE)
CODE: Final = re.compile(r"`[^`\n]+`")
LINK: Final = re.compile(r"\]\((?P<path>[^)\s#:/][^)\s#:]*)(?P<anchor>#[^)\s]*)?\)")
LOADED: Final = re.compile(
    r"""<(?:audio|embed|iframe|img|link|object|script|source|video)\b[^>]*?\s(?:data|href|src)=["']?((?:https?:)?//[^"'\s>]+)"""
)
# Warnings of this name are counted by MkDocs.
log = getLogger("mkdocs.hooks.site")
LANGUAGES: Final[Mapping[str, str]] = {
    ".json": "json",
    ".ndjson": "json",
    ".py": "python",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}

# Long, and seldom searched for.
FOUND_LATE: Final = "---\nsearch:\n  boost: 0.1\n---\n\n"
# It has every word, so a search would find it first and no answer in it.
NOT_FOUND: Final = {"CHANGELOG.md": "---\nsearch:\n  exclude: true\n---\n\n"}

Outsiders = dict[str, str]
"""The Markdown of each page for a file outside of docs/, by the path of the file in the repository."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that a page leads to, directly or not."""
    todo = [
        (f"{DOCS}{file.src_uri}", file.content_string) for file in files.documentation_pages() if file.src_uri
    ]
    found: Outsiders = {}
    while todo:
        place, text = todo.pop()
        for target in targets(place, text):
            # MkDocs itself says which links lead nowhere.
            if not target.startswith(DOCS) and target not in found and (ROOT / target).exists():
                found[target] = page_of(target)
                todo.append((target, "" if is_code(target) else found[target]))
    files.append(File.generated(config, f"{EXTENDING}.md", content=extending()))
    for target, text in found.items():
        level = InclusionLevel.INCLUDED if target.count("/") == 0 else InclusionLevel.NOT_IN_NAV
        content = NOT_FOUND.get(target, "") + text
        files.append(File.generated(config, site_path(target), content=content, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return what MkDocs renders."""
    return titled(unescaped(relinked(markdown, repository_path(page.file.src_uri))))


def unescaped(markdown: str) -> str:
    """Return Markdown with plain bars in the code of tables: GitHub wants an escape, and MkDocs shows it."""
    return ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Say what a page would load from another host, which ends a strict build."""
    for address in foreign(output):
        log.warning("%s loads %s from another host", page.file.src_uri, address)
    return output


def foreign(html: str) -> list[str]:
    """Return what a page loads from other hosts; links for readers do not count."""
    return LOADED.findall(html)


def titled(markdown: str) -> str:
    """Return Markdown whose fences have the name of their file or terminal as a title, and no other note."""

    def replace(match: re.Match[str]) -> str:
        notes = dict(note.split("=", 1) for note in match["notes"].split() if "=" in note)
        name = notes.get("file") or (f"Terminal {notes['terminal']}" if "terminal" in notes else "")
        title = f' title="{name}"' if name else ""
        return f"{match['ticks']}{match['language']}{title}"

    return FENCE.sub(replace, markdown)


def relinked(markdown: str, place: str) -> str:
    """Return the Markdown of a file of the repository with links to the pages of the site.

    Args:
        markdown: the text.
        place: the path of the file in the repository.
    """
    start = posixpath.dirname(site_path(place))

    def replace(match: re.Match[str]) -> str:
        target = site_path(joined(place, match["path"]))
        return f"]({posixpath.relpath(target, start or '.')}{match['anchor'] or ''})"

    parts = BLOCK.split(markdown)
    return "".join(part if BLOCK.fullmatch(part) else LINK.sub(replace, part) for part in parts)


def targets(place: str, markdown: str) -> Iterator[str]:
    """Yield the paths in the repository of the files that a file links."""
    for match in LINK.finditer(BLOCK.sub("", markdown)):
        yield joined(place, match["path"])


def joined(place: str, link: str) -> str:
    """Return the path in the repository that a relative link in a file means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def site_path(path: str) -> str:
    """Return the path in the site for one in the repository."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return f"{OUTSIDE}{path}" if path.endswith(".md") else f"{OUTSIDE}{path}.md"


def repository_path(src_uri: str) -> str:
    """Return the path in the repository for one in the site."""
    if src_uri.startswith(OUTSIDE):
        return src_uri.removeprefix(OUTSIDE)
    return f"{DOCS}{src_uri}"


def extending() -> str:
    """Return the page for authors of drivers and modules; it is long, so no file holds it."""
    return f"{FOUND_LATE}# Python API: for authors of drivers and modules\n\n{api_page(EXTENDING)}\n"


def is_code(path: str) -> bool:
    """Whether a path of the repository is that of a file other than Markdown."""
    return not path.endswith(".md") and (ROOT / path).is_file()


def listed(path: str) -> str:
    """Return the Markdown that shows a folder: a link to each file below it."""
    folder = ROOT / path
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    links = (f"- [{file.relative_to(folder)}]({file.relative_to(folder.parent)})" for file in files)
    return "\n".join((f"{FOUND_LATE}# {path}", "", *links, ""))


def page_of(path: str) -> str:
    """Return the Markdown that shows a file of the repository."""
    if (ROOT / path).is_dir():
        return listed(path)
    text = (ROOT / path).read_text("utf-8")
    if not is_code(path):
        return FOUND_LATE + text
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n```{language}\n{text.rstrip()}\n```\n"
