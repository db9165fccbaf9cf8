#!/usr/bin/env python3
"""Finds dead links in a folder of HTML pages: files that are not there, and anchors that no page has.

    docs/site/check_links.py FOLDER [--external]

--external also asks the hosts of links that lead elsewhere. tests/check_links_test.py proves that a dead link is found.
"""

import argparse
import html.parser
import pathlib
import sys
import urllib.error
import urllib.parse
import urllib.request


class Page(html.parser.HTMLParser):
    """The anchors of a page and what it refers to."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets = {"", "top"}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value and tag != "base":
                self.targets.append((value, self.getpos()[0]))


def dead_links(folder):
    """(page, line, target, why) of each dead link inside the folder; the set of targets outside."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        sys.exit(f"{folder}: there are no pages")
    dead, external = [], {}
    for path, page in pages.items():
        for target, line in page.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme in ("http", "https"):
                external.setdefault(target.split("#")[0], (path, line))
                continue
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if place.is_dir():
                place /= "index.html"
            if not place.is_file():
                dead.append((path, line, target, "no such file"))
            elif place in pages and urllib.parse.unquote(parts.fragment) not in pages[place].anchors:
                dead.append((path, line, target, "no such anchor"))
    return dead, external


def answers(address):
    request = urllib.request.Request(address, method="GET", headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status < 400
    except (urllib.error.URLError, OSError):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--external", action="store_true")
    arguments = parser.parse_args()
    dead, external = dead_links(arguments.folder)
    if arguments.external:
        dead += [(path, line, address, "does not answer") for address, (path, line) in sorted(external.items()) if not answers(address)]
    for path, line, target, why in dead:
        print(f"{path.relative_to(arguments.folder.resolve())}:{line}: {target}: {why}")
    print(f"links: {len(dead)} dead, {len(external)} lead elsewhere")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
