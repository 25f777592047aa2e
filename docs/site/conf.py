"""How Sphinx builds the site from what tools/build_site.py has put together."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

project = "Ruling out to rule in"
author = "the companion's authors, who are not the paper's"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "index"

nb_execution_mode = "off"  # committed outputs, and nothing else
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4
# A page may leave out a level of headings, and a line to type may hold "<your address>".
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}  # light or dark as the reader's machine is
html_theme_options = {
    "navbar_persistent": [],  # its search stands in the side bar already
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "collapse_navbar": False,
}

TABLES = ("<table", "<svg", "<style")


def leave_out_of_search(app: Any, doctree: nodes.document, docname: str) -> None:
    """Search finds prose: no cells of tables, no code of notebooks and nothing that it printed."""
    for node in doctree.findall(nodes.Element):
        printed = isinstance(node, nodes.container) and "cell_input" in node["classes"]
        printed |= isinstance(node, nodes.literal_block) and "output" in node["classes"]
        raw = isinstance(node, nodes.raw) and any(tag in node.astext() for tag in TABLES)
        if printed or raw or isinstance(node, nodes.table):
            node["classes"].append("no-search")


def plain_signature(app: Any, what: str, *about: Any) -> tuple[str, str | None] | None:
    """Signatures that Sphinx can read: no ``<factory>``, no arguments of a protocol."""
    signature, returns = about[-2:]
    if what != "class" or not signature:
        return None
    shown = signature.replace("<factory>", "...")
    return ("" if shown == "(*args, **kwargs)" else shown), returns


def show_formula(self: Any, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw themselves: no script, no network."""
    self.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("doctree-resolved", leave_out_of_search)
    app.connect("autodoc-process-signature", plain_signature)
    app.add_html_math_renderer("mathml", (show_formula, None), (show_formula, None))
