"""A Sphinx extension: each page tells the browser what it may load and run.

Nothing from other hosts, and no script that was not there when the book was built. The rule is a
Content-Security-Policy in the page itself, since a static host sends none. Scripts that stand in
a page are named by their hash. JupyterLite's pages are not the book's and are left alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# `file:` is for a page that is opened from the disk; on the web no page may read a file anyway.
OURS = "'self' file:"
RULES = {
    "default-src": OURS,
    # Python in the page is WebAssembly.
    "script-src": f"{OURS} 'wasm-unsafe-eval'",
    # The theme, MathJax and our pictures set styles of elements.
    "style-src": f"{OURS} 'unsafe-inline'",
    "img-src": f"{OURS} data:",
    "font-src": f"{OURS} data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": OURS,
}
MARK = '<meta http-equiv="Content-Security-Policy"'


class Inline(HTMLParser):
    """Collects the scripts that stand in a page, and those in its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note handlers, and where a script begins."""
        self.handlers += [text or "" for name, text in attrs if name.startswith("on")]
        if tag == "script" and "src" not in dict(attrs):
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        """Note where a script ends."""
        if tag == "script":
            self._inside = False

    def handle_data(self, data: str) -> None:
        """Collect the text of a script."""
        if self._inside:
            self.scripts[-1] += data


def policy(page: str) -> str:
    """Return the policy under which a page works as it was built."""
    found = Inline()
    found.feed(page)
    found.close()
    hashes = sorted({_hash(text) for text in [*found.scripts, *found.handlers]})
    rules = dict(RULES)
    rules["script-src"] += "".join(f" {known}" for known in hashes)
    if found.handlers:
        rules["script-src"] += " 'unsafe-hashes'"  # the theme's buttons: only these
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def guarded(page: str) -> str:
    """Return the page with its policy, before everything that could load something."""
    page = re.sub(rf"\n?\s*{re.escape(MARK)}[^>]*>", "", page)
    said = f'{MARK} content="{policy(page)}">'
    return re.sub(r"(<head\b[^>]*>)", lambda head: f"{head[1]}\n    {said}", page, count=1)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def guard(site: Path) -> None:
    """Guard every page of the book."""
    for path in site.rglob("*.html"):
        if path.relative_to(site).parts[0] in ("lite", "_static"):
            continue
        page = path.read_text(encoding="utf-8")
        if "<head" in page and (now := guarded(page)) != page:
            path.write_text(now, encoding="utf-8")


def _at_the_end(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        guard(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx."""
    app.connect("build-finished", _at_the_end)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
