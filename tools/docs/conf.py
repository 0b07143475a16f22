"""Settings of Sphinx for the website; see tools/build_docs.py."""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

project = "argus.verl"
author = "The argus.verl contributors"
copyright = "2026, the argus.verl contributors"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "README"
language = "en"

# Headings get the anchors that GitHub gives them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Blocks without a language are output of playbooks, not Python.
highlight_language = "none"
# Examples leave things out, so some are not valid YAML or JSON.
suppress_warnings = ["misc.highlighting_failure"]

# This theme contains its fonts and scripts, so that pages load nothing from other hosts.
html_theme = "furo"
html_title = "argus.verl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
# The colors of options are in site.css, where they follow the theme.
antsibull_ext_color_scheme = "none"

# The labels of Ansible's documentation to which the pages of modules refer. Sphinx could download a list of all, but
# not without a network; these few are stable.
ANSIBLE = "https://docs.ansible.com/ansible/latest"
ANSIBLE_PAGES = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}


def ansible_link(
    _app: Sphinx, _environment: object, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.reference | None:
    """A link to Ansible's documentation, for a label that is not ours."""
    label = node["reftarget"]
    page = ANSIBLE_PAGES.get(label)
    if label.startswith("ansible_collections.") and not label.startswith("ansible_collections.argus."):
        page = "{}.html".format(label.replace("ansible_collections", "collections").replace(".", "/"))
    return nodes.reference("", "", text, internal=False, refuri=f"{ANSIBLE}/{page}") if page else None


def setup(app: Sphinx) -> None:
    app.connect("missing-reference", ansible_link)
