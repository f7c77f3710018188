"""Translated HTML and XHTML in a browser: the same elements as before, with other texts."""

from pathlib import Path
from typing import Any

import pytest

from ..documents.examples import EXAMPLES, opened, translate

TREE = """
const tree = element => [element.tagName, ...Array.from(element.children).map(tree)];
return [tree(document.documentElement), document.body.innerText];
"""
PAGE = EXAMPLES["page.html"]
XHTML = b"""<?xml version="1.0" encoding="UTF-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><title>A page</title></head>
<body><p>One line.<br/>Another &amp; <b>bold</b> one.</p><ul><li>First</li><li>Second</li></ul></body></html>
"""


@pytest.mark.parametrize(("name", "data"), [("page.html", PAGE), ("page.xhtml", XHTML)])
def test_a_browser_reads_the_same_elements(browser: Any, name: str, data: bytes, tmp_path: Path) -> None:
    read = []
    for content in (data, translate(opened(name, data))):
        path = tmp_path / name
        path.write_bytes(content)
        browser.get(path.as_uri())
        read.append(browser.execute_script(TREE))
    browser.get_log("browser")  # pictures that are not there are nobody's fault
    (before, text), (after, shouted) = read
    assert after == before
    assert len(before) > 1
    assert shouted != text
    assert shouted.lower() == text.lower()
