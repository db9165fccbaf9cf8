"""What the site's texts need of Sphinx: links to source files, examples out of headers, tables of a family's classes."""

import pathlib
import posixpath
import re

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
# The headers that are installed (scripts/check-structure).
PUBLIC = {ROOT / header for header in re.findall(r'^#include "(.*)"', (ROOT / "unmetal.hpp").read_text(), re.MULTILINE)}
FENCE = re.compile(r"^(```|~~~)")


def link_sources(app, document, content):
    """Links to what is no text of the site go to the page that shows it."""
    if not str(app.env.doc2path(document)).endswith(".md"):
        return
    folder = posixpath.dirname(document)

    def rewritten(match):
        target = posixpath.normpath(posixpath.join(folder, match.group(2)))
        if (pathlib.Path(app.srcdir) / "source" / f"{target}.rst").is_file():
            return match.group(1) + posixpath.relpath(f"source/{target}.rst", folder or ".") + ")"
        return match.group(0)

    lines, in_code = [], False
    for line in content[0].split("\n"):
        if FENCE.match(line.strip()):
            in_code = not in_code
        lines.append(line if in_code else LINK.sub(rewritten, line))
    content[0] = "\n".join(lines)


class HeaderExample(SphinxDirective):
    """The example that ends the comment of a class, or of its header where it has none.

    tests/header_examples.py makes a test of that of each gradient kernel.

        ```{header-example} mps/pooling/pooling.hpp CNNPoolingMaxGradient
        ```
    """

    required_arguments = 2

    def run(self):
        header, name = self.arguments
        self.env.note_dependency(str(ROOT / header))
        text = (ROOT / header).read_text()
        match = re.search(rf"((?:^///.*\n)+)^(?:class|struct) {name}\b", text, re.MULTILINE)
        lines = [line[len("///     "):] for line in match.group(1).split("\n") if line.startswith("///     ")] if match else []
        if not lines:  # of the header as a whole
            lines = [line[len("///     "):] for line in text[:text.index("\nnamespace")].split("\n") if line.startswith("///     ")]
        starts = [place for place, line in enumerate(lines) if re.match(r"(auto|const auto) ", line)]
        if not starts:
            raise self.error(f"{header} has no example of {name}")
        code = "\n".join(lines[starts[0]:])
        return [nodes.literal_block(code, code, language="cpp")]


class FamilyClasses(SphinxDirective):
    """A list of the classes in headers, linked to the API: the arguments are public headers or patterns of them."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"match": directives.unchanged}

    def run(self):
        node, shown = nodes.bullet_list(), self.classes_of_api()
        for header in sorted(PUBLIC & {path for argument in self.arguments[0].split() for path in ROOT.glob(argument)}):
            self.env.note_dependency(str(header))
            text = header.read_text()
            names = re.findall(r"^class (\w+)(?! *;)\s*(?:final)?\s*(?::|\{)", text, re.MULTILINE)
            names = [name for name in dict.fromkeys(names) if name in shown and re.search(self.options.get("match", ""), name)]
            if not names:
                continue
            path = str(header.relative_to(ROOT))
            paragraph = nodes.paragraph()
            paragraph += [nodes.literal(path, path), nodes.Text(": ")]
            for place, name in enumerate(names):
                paragraph += [nodes.Text(", ")] if place else []
                paragraph += self.reference(name)
            node += nodes.list_item("", paragraph)
        if not node.children:
            raise self.error(f"no classes in {self.arguments[0]}")
        return [node]

    def classes_of_api(self):
        """The classes that have a place in the API: those of `detail` have none."""
        pages = (pathlib.Path(self.env.srcdir) / "api" / "cpp").glob("*.rst")
        return {name for page in pages for name in re.findall(r"doxygenclass:: mps::(\w+)", page.read_text())}

    def reference(self, name):
        reference = addnodes.pending_xref("", refdomain="cpp", reftype="any", reftarget=f"mps::{name}", refexplicit=True,
                                          refwarn=True, refdoc=self.env.docname)
        reference += nodes.literal(name, name)
        return reference


def colour_examples(app, document):
    """Code of C++ in comments is shown as such; formulas and tables of numbers are not."""
    for block in document.findall(nodes.literal_block):
        if block.get("language", "none") in ("none", "default") and re.search(r"::create\(|->encode|mps::|^#include", block.astext(), re.M):
            block["language"] = "cpp"


def name_readme(app, page, template, context, document):
    """In links to the next and to the former page: README has the title of the first page."""
    for side in ("next", "prev"):
        neighbour = context.get(side)
        if neighbour and neighbour["title"] == "unmetal" and neighbour["link"].endswith("README.html"):
            neighbour["title"] = "README and first training"


def setup(app):
    app.connect("html-page-context", name_readme)
    app.connect("source-read", link_sources)
    app.connect("doctree-read", colour_examples)
    app.add_directive("header-example", HeaderExample)
    app.add_directive("classes", FamilyClasses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
