"""The example in README.md is examples/readme.cpp, letter by letter."""

import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
example = (root / "examples" / "readme.cpp").read_text()
if "```cpp\n" + example + "```\n" not in (root / "README.md").read_text():
    sys.exit("README.md does not contain examples/readme.cpp as it is")
if len(example.splitlines()) > 20:
    sys.exit(f"examples/readme.cpp has {len(example.splitlines())} lines: too long for a first look")
