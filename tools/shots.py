"""Look at built pages in a browser, in the four ways a reader meets them.

``python tools/shots.py SITE --into FOLDER [PAGE ...]`` saves each page in full at 360 and at
1280 pixels, light and dark. ``python tools/shots.py SITE --check`` saves nothing. Both report,
and fail on: a page wider than the screen, a script's error, a missing file, and any request to
another host, for the book must work without a network. PAGE is relative to SITE; without any,
every page is taken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    from playwright.sync_api import Browser, Request, Response, sync_playwright
except ModuleNotFoundError:
    sys.exit("Screenshots need Playwright: `make lint` installs it with the developer's tools.")

import serve  # beside this file

WIDTHS = (360, 1280)
THEMES = ("light", "dark")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Pages that Sphinx makes and no reader is sent to, and JupyterLite's.
NOT_PAGES = (
    "_modules",
    "_sources",
    "_static",
    "genindex.html",
    "lite",
    "py-modindex.html",
    "search.html",
)
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const wide = [...document.querySelectorAll("main *")].filter(
    (e) => e.getBoundingClientRect().right > width + 1);
  const name = (e) => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined
    ? "." + e.className.trim().split(/\\s+/).join(".") : "");
  return document.documentElement.scrollWidth + " px, first by " + (wide[0] ? name(wide[0]) : "?");
}"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve `folder` in the background and give its address."""
    serve.Handler.log_message = lambda *_: None
    with serve.listen(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def look(browser: Browser, site: str, name: str, theme: str, into: Path | None) -> list[str]:
    """Open one page in one theme and every width; return what is wrong with it."""
    wrong: list[str] = []

    def on_request(request: Request) -> None:
        if not request.url.startswith((site, "data:", "blob:", "about:")):
            wrong.append(f"asks another host for {request.url}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            wrong.append(f"{response.status} for {response.url.removeprefix(site)}")

    with browser.new_context(viewport={"width": WIDTHS[0], "height": 900}) as view:
        # The theme reads its mode from here before it draws.
        view.add_init_script(
            f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')"
        )
        page = view.new_page()
        page.on("request", on_request)
        page.on("response", on_response)
        page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
        page.goto(site + name, wait_until="networkidle")
        page.add_style_tag(content="* { transition: none !important }")
        page.evaluate("window.MathJax?.startup?.promise")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
            overflow = page.evaluate(OVERFLOW)
            if overflow:
                wrong.append(f"wider than {width} px: {overflow}")
            if into:
                stem = name.removesuffix(".html").replace("/", "-")
                page.screenshot(path=into / f"{stem}-{width}-{theme}.png", full_page=True)
    return [f"{name}, {theme}: {what}" for what in wrong]


def pages_of(site: Path) -> list[str]:
    """Return the names of a site's pages, without those that only Sphinx needs."""
    names = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [name for name in names if not name.startswith(NOT_PAGES) and name != "index.html"]


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path, help="the built book, e.g. _build/html")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="e.g. chapters/intro.html")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--into", type=Path, help="folder for the pictures")
    what.add_argument("--check", action="store_true", help="only report")
    options = parser.parse_intermixed_args()

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        print("The pages were not looked at: this needs the program `chromium`.")
        return 1 if os.environ.get("CI") else 0
    for name in options.pages:
        if not (options.site / name).is_file():
            parser.error(f"{options.site / name} does not exist: build the book, or mend the name.")
    names = options.pages or pages_of(options.site)
    if not names:
        parser.error(f"{options.site} holds no pages: build the book first (make site).")
    if options.into:
        options.into.mkdir(parents=True, exist_ok=True)

    wrong: list[str] = []
    with served(options.site) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in names:
            for theme in THEMES if options.into else THEMES[:1]:
                wrong += look(browser, site, name, theme, options.into)
        browser.close()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(names)} pages looked at, {len(wrong)} problems.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
