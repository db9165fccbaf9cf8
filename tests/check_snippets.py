#!/usr/bin/env python3
"""The code in the documents is that of programs which are compiled and run.

    tests/check_snippets.py [ROOT]

Each block of C++ in the documents below stands, line by line, in one of the example programs that its document names.
tests/check_snippets_test.py proves that a block that does not is found.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ("docs/data-sources.md", "docs/from-pytorch.md", "docs/onnx.md", "docs/reading-results.md", "docs/training.md", "docs/your-own-pictures.md")
BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def strange_blocks(root, document):
    """The blocks of a document that none of its programs has."""
    text = (root / document).read_text()
    names = sorted(set(re.findall(r"`(examples/\w+\.cpp)`", text)))
    programs = ["\n" + (root / name).read_text() for name in names]
    blocks = BLOCK.findall(text)
    if not programs or not blocks:
        yield "no program is named, or there is no code"
    for block in blocks:
        if not any("\n" + block in program for program in programs):
            yield block


def main():
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    wrong = 0
    for document in DOCUMENTS:
        for block in strange_blocks(root, document):
            print(f"{document}: its programs do not have\n{block}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
