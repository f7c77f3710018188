"""Make one site of docs/ and the pages beside it, so that a link works on GitHub and in the site alike.

README.md is the front page. A file outside docs/ that a page links to (`../configs/quick.toml`) is published at its own
path (`configs/quick.toml`), and the pages' links are rewritten to match. GitHub's Markdown ends a block of code at its
fence; Python-Markdown wants an empty line behind it, or takes a table that follows for text.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MODELS = ("models/mini-de-en/README.md", "models/mini-en-de/README.md", "models/train/CATALOGS.md")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *MODELS)
OUTSIDE = re.compile(r"(?<=\]\()\.\./(?=([^)#\s]+))")  # the ../ of a link in docs/, which has no folders of pages
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INSIDE = re.compile(r"(?<=\]\()docs/")  # a link of README.md into docs/


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and what its pages link to outside."""
    linked = {found[1] for page in files.documentation_pages() for found in OUTSIDE.finditer(page.content_string)}
    for name in sorted({*PAGES, *linked}):
        if files.get_file_from_path(name) is None and (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links that cross the border of docs/, and end blocks of code."""
    markdown = FENCED.sub(r"\g<0>\n", markdown)
    if page.file.src_uri == "README.md":
        return INSIDE.sub("", markdown)
    return markdown if page.file.src_uri in PAGES else OUTSIDE.sub("", markdown)
