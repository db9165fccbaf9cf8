#!/usr/bin/env python3
"""docs/site/check_links.py finds what is dead, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parent.parent / "docs" / "site" / "check_links.py"
GOOD = '<h1 id="here"></h1><a href="b/other.html#there">x</a><a href="#here">x</a><a href="http://example.org/x">x</a><img src="a.svg">'


def check(page):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "b").mkdir()
        (folder / "b" / "other.html").write_text('<h1 id="there"></h1><a href="../index.html">x</a>')
        (folder / "a.svg").write_text("<svg/>")
        (folder / "index.html").write_text(page)
        return subprocess.run([sys.executable, str(CHECK), name], capture_output=True, text=True)


def main():
    good = check(GOOD)
    assert good.returncode == 0, good.stdout
    for link, why in (('<a href="b/none.html">', "no such file"), ('<a href="b/other.html#none">', "no such anchor"),
                      ('<a href="#none">', "no such anchor"), ('<img src="none.svg">', "no such file")):
        bad = check(GOOD + link)
        assert bad.returncode == 1 and why in bad.stdout and "none" in bad.stdout and "links: 1 dead" in bad.stdout, (link, bad.stdout)


main()
