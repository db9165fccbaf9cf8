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


def by_family(pack):
    found = collections.defaultdict(list)
    for entry in pack["faults"]:
        found[entry["family"]].append(entry)
    return dict(sorted(found.items()))


def closing_line(pack):
    """Prints the counts; the exit status."""
    families = by_family(pack)
    for family, entries in families.items():
        print(f"{family}: {caught(entries)} of {len(counted(entries))}")
        for why in {entry["unjudged"] for entry in entries if "unjudged" in entry}:
            print(f"    others not judged: {why}")
    short = [family for family, entries in families.items()
             if not counted(entries) or caught(entries) < GOAL * len(counted(entries))]
    print(f"{caught(pack['faults'])} of {len(counted(pack['faults']))} faults caught (seed {pack['seed']}, goal "
          f"{100 * GOAL:.0f} %" + (f"; short of it: {', '.join(short)})" if short else ")"))
    return 0 if counted(pack["faults"]) and caught(pack["faults"]) >= GOAL * len(counted(pack["faults"])) else 1


def table(families):
    lines = ["| family | planted | caught | share | change no result |", "|---|---|---|---|---|"]
    for family, entries in families.items():
        count = len(counted(entries))
        same = sum("equivalent" in entry for entry in entries)
        lines.append(f"| {family} | {count} | {caught(entries)} | {100 * caught(entries) / max(1, count):.0f} % | {same or ''} |")
    return lines


def fault_lines(entry):
    lines = [f"`{entry['file']}` line {entry['line']}, {entry['kind']}"
             + (f": {entry['equivalent']}" if "equivalent" in entry else ":")]
    return [*lines, "", "```", f"- {entry['old']}", f"+ {entry['new']}", "```", ""]


def report_rows(pack):
    """The table, what was not caught, and what changes no result."""
    lines = table(by_family(pack))
    missed = [entry for entry in counted(pack["faults"]) if entry["outcome"] is None]
    same = [entry for entry in pack["faults"] if "equivalent" in entry]
    for title, entries in (("Not caught:", missed), ("Change no result, and do not count:", same)):
        if entries:
            lines += ["", title, ""]
        for entry in entries:
            lines += fault_lines(entry)
    return lines


def write_section(title, lines):
    """Puts a section into the report, in the place of the one with this title."""
    text = REPORT.read_text() if REPORT.is_file() else ""
    sections = {section.split("\n")[0]: section for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    sections[title] = "\n".join([title, "", *lines]).rstrip("\n") + "\n"
    head = ("# Planted faults\n\n`scripts/plant-faults` changes one operator, bound, divisor, index or comparison of a kernel\n"
            "at a time and looks whether `unmetal conform` notices. The goal is 95 %.\n")
    REPORT.write_text("\n".join([head] + ["## " + sections[one].rstrip("\n") + "\n" for one in sorted(sections)]))
    print(f"written: {REPORT.relative_to(ROOT)}")


def write_report(pack):
    """A pack of CUDA kernels has units."""
    on_cuda = "units" in pack
    command = f"scripts/plant-faults {'--cuda ' if on_cuda else ''}--seed {pack['seed']} --count {pack['count']}"
    write_section("CUDA kernels" if on_cuda else "Kernels of the CPU", [
        f"{pack['machine']}, commit {pack['commit']}, seed {pack['seed']}, up to {pack['count']} faults a family:", "",
        "```sh", command, *(["scripts/cuda-run faults"] if on_cuda else []), "```", "", *report_rows(pack)])
