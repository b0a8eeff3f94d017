"""How the documentation is built (scripts/docs): from the installed headpond."""

import sys
from pathlib import Path

import headpond

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "headpond"
author = "the authors of headpond"
copyright = f"2026, {author}"
release = headpond.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code"]
exclude_patterns = ["_ext"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

smartquotes = False

autodoc_type_aliases = {"DTypeLike": "DTypeLike", "Source": "Source"}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes as a list in the class, not as objects of their own

html_theme = "furo"
html_title = "headpond"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
