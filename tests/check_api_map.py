#!/usr/bin/env python3
"""Fails when docs/api-map.md says something of a header, a test or a back end that is not so.

    tests/check_api_map.py [ROOT]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
OURS = re.compile(r"^`(mps|mtl)::(\w+)`$")


def declares(text: str, name: str) -> bool:
    types = rf"^(?:class|struct|enum class)\s+{name}\b(?!;)|^\s*using {name}\b\s*="
    functions = rf"^(?:inline |constexpr |\[\[nodiscard\]\] )*[\w:<>&* ]+\b{name}\s*[(={{]"
    return re.search(f"{types}|{functions}", text, flags=re.MULTILINE) is not None


def public_headers() -> list[str]:
    return [path.read_text() for folder in ("mps", "mtl") for path in (ROOT / folder).rglob("*.hpp")]


def problem(cells: list[str], headers: list[str]) -> str | None:
    apple, ours, header, test, back_ends = cells
    if not ours:
        if back_ends != "not yet" and not re.match(r"out: \w+", back_ends):
            return "neither ours, nor not yet, nor out with a reason"
        name = apple[3:]
        if any(re.search(rf"^class {name}\b(?!;)", text, flags=re.MULTILINE) for text in headers):
            return f"class {name} is there"
        return None
    match = OURS.match(ours)
    if match is None:
        return f"{ours} is no name"
    name = match.group(2)
    path = ROOT / header
    if not header or not path.is_file():
        return f"no header {header}"
    if not header.startswith(match.group(1) + "/") or not declares(path.read_text(), name):
        return f"{header} does not declare {ours}"
    if test and not ((ROOT / test).is_file() and re.search(rf"\b{name}\b", (ROOT / test).read_text())):
        return f"{test} does not use {name}"
    if back_ends not in ("", "CPU", "CPU, CUDA"):
        return f"back ends {back_ends}"
    if back_ends and ("CUDA" in back_ends) != any(path.parent.glob("*_cuda.*")):
        return f"back ends {back_ends}, {path.parent.name} has others"
    return None


def main() -> int:
    headers = public_headers()
    rows = 0
    wrong = []
    names = set()
    for line in (ROOT / "docs" / "api-map.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 5 or not re.match(r"M(PS|TL)", cells[0]):
            continue
        rows += 1
        found = "named twice" if cells[0] in names else problem(cells, headers)
        names.add(cells[0])
        if found:
            wrong.append(f"{cells[0]}: {found}")
    print("\n".join(wrong))
    print(f"{rows} rows, {len(wrong)} wrong")
    return 1 if wrong or rows < 400 else 0


if __name__ == "__main__":
    sys.exit(main())
