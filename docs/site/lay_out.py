#!/usr/bin/env python3
"""Lays the site's sources out in a folder of their own: the texts as links to the repository's files, the pages of the API, and a page for
each source file that a text links to.

    docs/site/lay_out.py SOURCE XML PROJECTS PACKAGE     where to, Doxygen's XML, its parts for Breathe, the unpacked Python package
"""

import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_api
import python_api

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".py": "python", ".md": "none"}


def texts():
    """Every text of the site, by its path in the repository."""
    found = [ROOT / name for name in TEXTS] + sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "layers").glob("*.md"))
    return [path.relative_to(ROOT) for path in found]


def link(place, target):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def source_page(path):
    """A page that shows a source file, or names the files of a folder."""
    title = f"``{path}``"
    lines = [":orphan:", "", title, "=" * len(title), ""]
    if (ROOT / path).is_dir():
        return lines + [f"* ``{name.relative_to(ROOT)}``" for name in sorted((ROOT / path).iterdir()) if name.is_file()] + [""]
    language = LANGUAGES.get(path.suffix, "none")
    return lines + [f".. literalinclude:: {ROOT / path}", f"   :language: {language}", "   :linenos:", ""]


def linked_sources(text):
    """Files and folders of the repository that a text links to and that are no text or picture of the site."""
    for target in LINK.findall((ROOT / text).read_text()):
        path = pathlib.Path((ROOT / text.parent / target).resolve())
        if path.exists() and ROOT in path.parents and path.suffix not in (".md", ".svg", ".png"):
            yield path.relative_to(ROOT)


def main():
    source, xml, projects, package = map(pathlib.Path, sys.argv[1:5])
    for folder in (source, projects):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    link(source / "index.md", ROOT / "docs" / "site" / "index.md")
    link(source / "examples" / "readme.cpp", ROOT / "examples" / "readme.cpp")
    link(source / "docs" / "images", ROOT / "docs" / "images")
    sources = set()
    for text in texts():
        link(source / text, ROOT / text)
        sources |= set(linked_sources(text))
    for path in sources:
        place = source / "source" / f"{path}.rst"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(source_page(path)))
    groups = [(title, name) for title, name, _ in cpp_api.GROUPS]
    pages = cpp_api.write_pages(xml, projects, source / "api" / "cpp")
    python_api.write_pages(package, source / "api" / "python", pages, groups)


main()
