"""Configures Sphinx for the documentation site, which ``make docs`` builds in ``build/docs``."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

project = "pyfeed"
author = "The pyfeed authors"
copyright = author
release = re.search(r'^#define PF_VERSION "(.+)"$', (ROOT / "capi/pyfeed.h").read_text(), re.MULTILINE)[1]
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "header_reference",
    "site_links",
]

smartquotes_action = "D"  # dashes only

# ---- Pages --------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Links to files that are not pages, such as examples, lead to the repository.
repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]

# ---- Python ---------------------------------------------------------------------------------------

# Docstrings are NumPy style. A name between single backquotes is a reference.
default_role = "py:obj"
autodoc_default_options = {
    "member-order": "bysource",
    # Members of base classes in C are documented, those of tuple, Exception and similar classes are not.
    "inherited-members": "BaseException,Generic,NamedTuple,OSError,Protocol,dict,object,tuple",
}
autodoc_mock_imports = ["jax", "ray", "torch", "torchdata"]  # pyfeed.jax, pyfeed.ray and pyfeed.torch import them
autodoc_typehints = "none"  # docstrings have them
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_preprocess_types = True
c_maximum_signature_line_length = cpp_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

# Names in the signatures of C and C++ that have no entry: those of the standard libraries and private ones.
nitpick_ignore_regex = [(r"c:identifier|cpp:identifier", r".*")]

# ---- HTML -----------------------------------------------------------------------------------------

# `make docs` checks the links between pages, and that files in the repository exist. `make docs-links` checks the rest.
linkcheck_ignore = [re.escape(repository) + r"/(blob|tree)/main/"]
linkcheck_timeout = 20

html_theme = "furo"
html_title = f"pyfeed {release}"
html_static_path = ["_static"]
html_css_files = ["pyfeed.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "tango"
pygments_dark_style = "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def hide_private_bases(app: Any, name: str, obj: type, options: Any, bases: list[type]) -> None:
    """Leave out base classes of private modules, which have no entry."""
    bases[:] = [base for base in bases if "._" not in base.__module__] or [object]


def setup(app: Any) -> None:
    app.connect("autodoc-process-bases", hide_private_bases)
