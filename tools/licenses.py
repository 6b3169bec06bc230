"""Write the licenses of everything that the site brings of others beside its pages.

``python tools/licenses.py SITE`` leaves SITE/licenses.txt: for each part its name, version and
license, and the text that came with it. `chapters/licenses.md` is the short list. A part whose
license cannot be told is an error, so that nothing unknown is published.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

# Their style sheets, scripts and pictures lie in SITE/_static.
IN_THE_PAGES = (
    "jupyter-book",
    "myst-nb",
    "pydata-sphinx-theme",  # with Bootstrap and Font Awesome
    "pygments",
    "sphinx",
    "sphinx-book-theme",
    "sphinx-copybutton",  # with clipboard.js
    "sphinx-design",
    "sphinx-exercise",
    "sphinx-proof",
    "sphinx-togglebutton",
)
IS_LICENSE = re.compile(r"(?i)(^|/)(licen[sc]e|copying|notice)[^/]*$")
RULE = "=" * 78


class Part(NamedTuple):
    """Something of others: what it is, under which license, and what that says."""

    name: str
    version: str
    license: str
    text: str

    @property
    def known(self) -> bool:
        """Whether its license can be told."""
        return bool(self.license or self.text)


def _named(about: Message) -> str:
    """Return the license that a package's metadata names."""
    named = about.get("License-Expression") or about.get("License") or ""
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    # Some put the whole text there.
    return named if 0 < len(named) < 80 else ", ".join(classifiers)


def installed(name: str) -> Part:
    """Return a Python package of this environment."""
    found = distribution(name)
    texts = [
        Path(str(path.locate())).read_text(encoding="utf-8", errors="replace")
        for path in found.files or []
        if ".dist-info/" in str(path) and IS_LICENSE.search(str(path))
    ]
    about = found.metadata
    return Part(name, found.version, _named(about), "\n".join(texts))


def wheel(path: Path) -> Part:
    """Return a Python package that lies in the site as a wheel."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(archive.read(metadata).decode())
        texts = [
            archive.read(n).decode(errors="replace")
            for n in names
            if ".dist-info/" in n and IS_LICENSE.search(n)
        ]
    return Part(about["Name"], about["Version"], _named(about), "\n".join(texts))


def listed(path: Path) -> Iterator[Part]:
    """Yield the JavaScript packages in a bundle of JupyterLite."""
    for found in json.loads(path.read_text(encoding="utf-8"))["packages"]:
        yield Part(
            found["name"],
            found["versionInfo"] or "",
            found["licenseId"] or "",
            found["extractedText"] or "",
        )


def from_npm(folder: Path, name: str) -> Part:
    """Return what tools/vendor.py fetched."""
    about: Mapping[str, str] = {"version": "", "license": ""}
    if (folder / "package.json").is_file():
        about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    text = folder / "LICENSE"
    return Part(
        name,
        about["version"],
        about["license"],
        text.read_text(encoding="utf-8") if text.is_file() else "",
    )


def python_itself() -> Part:
    """Return CPython, whose standard library Pyodide brings."""
    text = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    said = text.read_text(encoding="utf-8") if text.is_file() else ""
    return Part("CPython's standard library", "", "PSF-2.0", said)


def parts(site: Path) -> list[Part]:
    """Return everything that the site brings of others, by name."""
    lite = site / "lite"
    found = [
        *map(installed, IN_THE_PAGES),
        from_npm(site / "mathjax", "MathJax"),
        from_npm(site / "pyodide", "Pyodide"),
        python_itself(),
        *(wheel(path) for path in lite.glob("packages/*.whl")),
        *(part for path in lite.rglob("third-party-licenses.json") for part in listed(path)),
    ]
    return sorted(set(found), key=lambda part: (part.name.lower(), part))


def written(found: Iterable[Part]) -> str:
    """Return the text of the file."""
    return "\n".join(
        f"{RULE}\n{part.name} {part.version}\n{part.license or 'its license is this:'}\n{RULE}\n\n"
        f"{part.text.strip()}\n"
        for part in found
    )


def main(site: Path) -> str | None:
    """Write SITE/licenses.txt; return a sentence if there is a part whose license is unknown."""
    found = parts(site)
    unknown = [f"{part.name} {part.version}" for part in found if not part.known]
    if unknown:
        return f"licenses: nothing tells the license of {', '.join(unknown)}"
    (site / "licenses.txt").write_text(written(found), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
