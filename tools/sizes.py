"""Report how large a built book is, part by part, and what a page makes its reader fetch.

``python tools/sizes.py SITE``. The second column is what travels: text and WebAssembly are
compressed by any web server.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

# How a file's name starts or ends; the first that fits counts.
PARTS = {
    "formulas (MathJax), as needed": ("mathjax/",),
    "Python (Pyodide), once a figure starts": ("pyodide/",),
    "JupyterLite, once it is opened": ("lite/",),
    "live figures' scripts and style": ("_static/live/",),
    "theme": ("_static/", "_sphinx_design_static/"),
    "pictures": ("_images/",),
    "search and sources": ("_sources/", "searchindex.js", "objects.inv"),
    "pages": (".html",),
    "other": ("",),
}
PACKED = {".gz", ".png", ".whl", ".woff2", ".zip"}


def part_of(name: str) -> str:
    """Return the part that a file belongs to."""
    return next(
        part for part, marks in PARTS.items() if name.startswith(marks) or name.endswith(marks)
    )


def main(site: Path) -> None:
    """Print the table."""
    sizes: dict[str, list[int]] = {part: [0, 0, 0] for part in PARTS}
    for path in site.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            packed = len(data) if path.suffix in PACKED else len(gzip.compress(data, 6, mtime=0))
            row = sizes[part_of(path.relative_to(site).as_posix())]
            row[:] = row[0] + 1, row[1] + len(data), row[2] + packed
    print("The book by part:           files       MB   MB compressed")
    for part, (files, plain, packed) in sizes.items():
        if files:
            print(f"  {part:<40}{files:>5}{plain / 1e6:>9.2f}{packed / 1e6:>9.2f}")
    total = [sum(column) for column in zip(*sizes.values(), strict=True)]
    print(f"  {'in all':<40}{total[0]:>5}{total[1] / 1e6:>9.2f}{total[2] / 1e6:>9.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/sizes.py SITE")
    main(Path(sys.argv[1]))
