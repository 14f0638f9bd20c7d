"""The page of coloured tokens is safe against any text."""

from collections import defaultdict
from html.parser import HTMLParser

import numpy as np

from rostok.measuring import token_page
from rostok.measuring.targets import (
    target_list,
)


def test_token_page_is_safe_against_any_text() -> None:
    pieces = [b"<|endoftext|>", b"<script>alert(1)</script>", b'" onmouseover="x', b"\xff"]
    pieces += ["\u202e".encode(), b"\n", b"\0"]
    targets = target_list([np.arange(7)], 0, pieces)
    name = '</title><img src=x onerror="y">'
    page = token_page.token_page(targets, [0], name, np.arange(7.0), "b", np.full(7, 3.0))
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\0" not in page
    assert '"x' not in page
    assert "://" not in page
    assert page.count("<bdi") == 2 * 7
    assert "⟨FF⟩" in page
    assert "⟨U+202E⟩" in page
    assert "default-src 'none'" in page
    opened: defaultdict[str, int] = defaultdict(int)
    allowed = {"class", "title", "lang", "dir", "charset", "name", "content", "http-equiv"}

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened[tag] += 1
            assert {key for key, _ in attrs} <= allowed

        def handle_endtag(self, tag):
            opened[tag] -= 1

    Tags().feed(page)
    assert {tag for tag, n in opened.items() if n} <= {"meta", "br"}
