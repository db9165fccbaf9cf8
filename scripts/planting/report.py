"""Counts of what was caught, and docs/planted-faults.md."""

import collections
import re

from planting.places import ROOT

REPORT = ROOT / "docs" / "planted-faults.md"
GOAL = 0.95


def counted(entries):
    """Faults that were judged and can change a result."""
    return [entry for entry in entries if "unjudged" not in entry and "equivalent" not in entry]


def caught(entries):
    return sum(entry["outcome"] is not None for entry in counted(entries))


def by_family(bundle):
    found = collections.defaultdict(list)
    for entry in bundle["faults"]:
        found[entry["family"]].append(entry)
    return dict(sorted(found.items()))


def closing_line(bundle):
    """Prints the counts; the exit status."""
    families = by_family(bundle)
    for family, entries in families.items():
        print(f"{family}: {caught(entries)} of {len(counted(entries))}")
        for why in {entry["unjudged"] for entry in entries if "unjudged" in entry}:
            print(f"    others not judged: {why}")
    short = [family for family, entries in families.items()
             if not counted(entries) or caught(entries) < GOAL * len(counted(entries))]
    print(f"{caught(bundle['faults'])} of {len(counted(bundle['faults']))} faults caught (seed {bundle['seed']}, goal "
          f"{100 * GOAL:.0f} %" + (f"; short of it: {', '.join(short)})" if short else ")"))
    return 0 if counted(bundle["faults"]) and caught(bundle["faults"]) >= GOAL * len(counted(bundle["faults"])) else 1


def missed_lines(bundle):
    """The faults that were not caught, as they were planted."""
    lines = []
    for entry in counted(bundle["faults"]):
        if entry["outcome"] is None:
            lines += [f"not caught: {entry['file']} line {entry['line']}, {entry['kind']}", f"- {entry['old']}", f"+ {entry['new']}"]
    return lines


def rows_of(bundle):
    """The line of each family that was drawn, without those of which no fault was judged."""
    rows = {}
    for family, entries in by_family(bundle).items():
        same = sum("equivalent" in entry for entry in entries)
        judged = len(counted(entries))
        if judged:
            rows[family] = (f"| {family} | {bundle['seed']} | {judged + same} | {same or ''} | {caught(entries)} | "
                            f"{caught(entries)} of {judged} |")
    return rows


def with_rows(text, title, rows):
    """The report with these lines in the table of this section, in the place of older ones of the same families."""
    head, heading, rest = text.partition(f"## {title}\n")
    if not heading:
        raise SystemExit(f"{REPORT} has no section {title}")
    section, *others = re.split(r"^(?=## )", rest, flags=re.MULTILINE)
    lines = section.split("\n")
    old = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ") and not line.startswith("| family")}
    begin = next(number for number, line in enumerate(lines) if line.startswith("|---")) + 1
    table = [line for _, line in sorted((old | rows).items())]
    return head + heading + "\n".join([*lines[:begin], *table, *lines[begin + len(old):]]) + "".join(others)


def write_report(bundle):
    """A bundle of CUDA kernels has units."""
    title = "CUDA kernels" if "units" in bundle else "Kernels of the CPU"
    REPORT.write_text(with_rows(REPORT.read_text(), title, rows_of(bundle)))
    print("\n".join([*missed_lines(bundle), f"written: {REPORT.relative_to(ROOT)}"]))
