"""The example in README.md is examples/readme.cpp, letter by letter; it and the networks of docs/training.md are as short as promised."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
example = (root / "examples" / "readme.cpp").read_text()
if "```cpp\n" + example + "```\n" not in (root / "README.md").read_text():
    sys.exit("README.md does not contain examples/readme.cpp as it is")
if len(example.splitlines()) > 20:
    sys.exit(f"examples/readme.cpp has {len(example.splitlines())} lines: too long for a first look")

page = (root / "docs" / "training.md").read_text()
lines = {}
for name in ("block", "resnet18"):
    function = re.search(rf"^```cpp\n(train::\w+ {name}\(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if not function:
        sys.exit(f"docs/training.md has no function {name}")
    lines[name] = len(function[1].splitlines())
if lines["block"] > 8 or sum(lines.values()) > 25:
    sys.exit(f"docs/training.md: a residual block of {lines['block']} lines, with its network {sum(lines.values())}; 8 and 25 were promised")
