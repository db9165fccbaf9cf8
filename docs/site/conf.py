"""The documentation site; scripts/site lays the texts out in build/site-source and calls Sphinx with this configuration."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

project = "unmetal"
copyright = "the authors of unmetal, MIT licence"
release = re.search(r"project\(unmetal VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
extensions = ["myst_parser", "breathe", "sphinx.ext.mathjax", "site_pages"]
root_doc = "index"
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
primary_domain = "cpp"
highlight_language = "none"  # blocks say what they are; formulas and tables in comments are no code

# Headings are anchors as on code hosts.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# One project for each page of the C++ API (docs/site/cpp_api.py).
breathe_projects = {folder.name: str(folder) for folder in sorted((ROOT / "build" / "site-projects").glob("*"))}
breathe_default_project = "mtl"

# Debian's copy lies beside the pages, so that formulas show without a network.
mathjax_path = "mathjax/MathJax.js?config=TeX-AMS_SVG"
mathjax_options = {"defer": "defer"}
# MyST marks its sections as free of formulas, but for the nodes that hold one, and would say so to version 3 alone.
myst_update_mathjax = False
mathjax2_config = {"tex2jax": {"ignoreClass": "tex2jax_ignore|mathjax_ignore", "processClass": "tex2jax_process|mathjax_process|math"},
                   "messageStyle": "none", "showMathMenu": False}

html_theme = "furo"
html_title = f"unmetal {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
