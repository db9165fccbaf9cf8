"""Makes the pages of the Python API from the stubs of the module and from the functions of unmetal.nn.functional."""

import ast
import pathlib
import re

INDENT = "   "


def code_block(rows):
    """Lines of a block; formulas are no code."""
    try:
        ast.parse("\n".join(rows))
        language = "python"
    except SyntaxError:
        language = "none"
    return [f".. code-block:: {language}", ""] + [INDENT + row for row in rows] + [""]


def escape(text):
    """Words of a docstring as reStructuredText: what stands in backticks is code, the rest is as it is written."""
    parts = re.split(r"(`+[^`]+`+)", text)
    for place, part in enumerate(parts):
        if place % 2:
            parts[place] = "``" + part.strip("`").strip() + "``\\ "
        else:
            parts[place] = re.sub(r"([*|_\\])", r"\\\1", part)
    return "".join(parts).rstrip()


def documentation(node, indent):
    text = ast.get_docstring(node)
    lines = []
    for block in re.split(r"\n\s*\n", text or ""):
        rows = block.split("\n")
        if all(row.startswith("    ") for row in rows):
            lines += code_block([row[4:] for row in rows])
        else:
            # Indented rows behind others are code as well.
            words = [row for row in rows if not row.startswith("    ")]
            code = [row for row in rows if row.startswith("    ")]
            lines += [escape(" ".join(row.strip() for row in words)), ""]
            if code:
                lines += code_block([row[4:] for row in code])
    return [indent + line if line else "" for line in lines]


def signature(function, is_method):
    arguments = function.args
    if is_method and arguments.args and "staticmethod" not in decorators(function):
        arguments.args = arguments.args[1:]
    text = f"({ast.unparse(arguments)})"
    return text + (f" -> {ast.unparse(function.returns)}" if function.returns else "")


def decorators(node):
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def functions(body, directive, indent):
    """Functions or methods of one name are one entry with a signature for each overload."""
    overloads = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            overloads.setdefault(node.name, []).append(node)
    lines = []
    for name, nodes in overloads.items():
        kinds = decorators(nodes[0])
        if "property" in kinds:
            lines += [f"{indent}.. py:property:: {name}"]
            if nodes[0].returns:
                lines += [f"{indent}{INDENT}:type: {ast.unparse(nodes[0].returns)}"]
            lines += [""] + documentation(nodes[0], indent + INDENT) + [""]
            continue
        nodes = [node for node in nodes if not any(kind.endswith(".setter") for kind in decorators(node))]
        if not nodes:
            continue
        head = f"{indent}.. py:{directive}:: "
        for place, node in enumerate(nodes):
            lines.append((head if place == 0 else " " * len(head)) + name + signature(node, directive == "method"))
        if "staticmethod" in kinds or "classmethod" in kinds:
            lines.append(f"{indent}{INDENT}:{'staticmethod' if 'staticmethod' in kinds else 'classmethod'}:")
        lines.append("")
        for text in dict.fromkeys("\n".join(documentation(node, indent + INDENT)) for node in nodes):
            lines += [text, ""]
    return lines


def class_lines(node, module, indent=""):
    bases = [ast.unparse(base) for base in node.bases]
    lines = [f"{indent}.. py:class:: {node.name}", ""]
    inner = indent + INDENT
    shown = [base for base in bases if base not in ("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "object")]
    if shown:
        lines += [f"{inner}Bases: " + ", ".join(f"``{base}``" for base in shown), ""]
    lines += documentation(node, inner)
    for place, entry in enumerate(node.body):
        if isinstance(entry, ast.AnnAssign) or isinstance(entry, ast.Assign) and isinstance(entry.targets[0], ast.Name):
            name = entry.target.id if isinstance(entry, ast.AnnAssign) else entry.targets[0].id
            if name.startswith("_"):
                continue
            lines += [f"{inner}.. py:attribute:: {name}"]
            if entry.value is not None and not isinstance(entry.value, ast.Constant):
                lines += [f"{inner}{INDENT}:value: {ast.unparse(entry.value)}"]
            elif entry.value is not None:
                lines += [f"{inner}{INDENT}:value: {entry.value.value!r}"]
            following = node.body[place + 1] if place + 1 < len(node.body) else None
            lines.append("")
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
                lines += [f"{inner}{INDENT}{escape(' '.join(following.value.value.split()))}", ""]
        elif isinstance(entry, ast.ClassDef):
            lines += class_lines(entry, module, inner)
    return lines + functions(node.body, "method", inner)


def page(title, module, body):
    return "\n".join([title, "=" * len(title), "", f".. py:currentmodule:: {module}", ""] + body + [""])


def functional_nodes(package):
    """The functions that unmetal.nn.functional exports, from the files that define them."""
    exported = set()
    for node in ast.parse((package / "nn" / "functional.py").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            exported |= {alias.asname or alias.name for alias in node.names}
    for path in sorted((package / "nn").glob("_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in exported and not node.name.startswith("_"):
                yield node


def write_pages(package, pages, group_of, groups):
    """`group_of` names the page of a C++ class, `groups` are (title, page) in order."""
    package, pages = pathlib.Path(package), pathlib.Path(pages)
    pages.mkdir(parents=True, exist_ok=True)
    titles = dict((name, title) for title, name in groups)
    titles["other"] = "Other names"
    bodies = {name: [] for name in titles}
    tree = ast.parse((package / "_core" / "__init__.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bodies[group_of.get(node.name, "other")] += class_lines(node, "unmetal")
    bodies["other"] += functions(tree.body, "function", "")
    entries = []
    for name in ("train", "onnx", "mtl"):
        tree = ast.parse((package / "_core" / f"{name}.pyi").read_text())
        body = [line for node in tree.body if isinstance(node, ast.ClassDef) for line in class_lines(node, f"unmetal.{name}")]
        (pages / f"{name}.rst").write_text(page(f"unmetal.{name}", f"unmetal.{name}", body + functions(tree.body, "function", "")))
        entries.append(f"   {name}")
    nodes = list(functional_nodes(package))
    (pages / "functional.rst").write_text(page("unmetal.nn.functional", "unmetal.nn.functional", functions(nodes, "function", "")))
    entries.append("   functional")
    for name, body in bodies.items():
        if body and name not in ("train", "onnx", "mtl"):
            (pages / f"{name}.rst").write_text(page(titles[name], "unmetal", body))
            entries.append(f"   {name}")
    (pages / "index.rst").write_text("\n".join([
        "Python", "======", "",
        "Classes have the names of C++, methods and properties are in snake_case; :doc:`/python/README` says how they differ.", "",
        ".. toctree::", "   :maxdepth: 1", "", *entries, ""]))
