"""Serve a built book on this machine, and open it in the browser if there is a screen.

``python tools/serve.py FOLDER [PORT]``. Without PORT: 8000, or any free one if that is taken.
"""

from __future__ import annotations

import functools
import os
import sys
import webbrowser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and keeps quiet about the ones that were found."""

    # Some systems' tables lack these, and a browser runs a module only under its own type.
    extensions_map = {  # noqa: RUF012  (that is how the base class declares it)
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing; errors are still reported."""

    def end_headers(self) -> None:
        """Have the browser ask again each time: pages change with every build."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


class Server(ThreadingHTTPServer):
    """Serves each request in a thread of its own."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that has left in the middle of a file."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def listen(folder: Path, port: int | None) -> Server:
    """Return a server for `folder` on `port`, on 8000, or on a free port."""
    handler = functools.partial(Handler, directory=str(folder))
    for candidate in [8000, 0] if port is None else [port]:
        try:
            return Server(("127.0.0.1", candidate), handler)
        except OSError:
            continue
    sys.exit(f"Port {port} is taken: name another, or none to have a free one chosen.")


def has_screen() -> bool:
    """Tell whether a browser window can open (a text browser would take over the terminal)."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def main(folder: Path, port: int | None = None) -> None:
    """Serve until interrupted."""
    if not (folder / "index.html").is_file():
        sys.exit(f"{folder} holds no index.html: build the book first (make site).")
    with listen(folder, port) as server:
        address = f"http://localhost:{server.server_port}/"
        print(f"The book is at {address} (stop with Ctrl-C)", flush=True)
        if has_screen():
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or not all(a.isdecimal() for a in arguments[1:]):
        sys.exit("usage: python tools/serve.py FOLDER [PORT]")
    main(Path(arguments[0]), *map(int, arguments[1:]))
