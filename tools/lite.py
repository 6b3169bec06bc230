"""Build JupyterLite beside the built book: every chapter as a notebook that runs in the browser.

``python tools/lite.py JUPYTER PYODIDE SITE`` builds `SITE/lite` with the program JUPYTER of an
environment of its own (`make lite`; jupytext must not be there). PYODIDE is the folder with
Pyodide and servesim's wheel, of which `SITE/pyodide` is the copy: the pages' Python is this one.

Whatever the kernel needs to start, to import servesim and to move sliders lies in the site.
matplotlib and numpy alone come from Pyodide's own package host, when a cell imports them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat

import golden  # beside this file
import lite_text
import own_wheel
from own_wheel import key

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "_build" / "lite"
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"

# Pure Python, at the versions that were tried together.
WHEELS = (
    "asttokens==3.0.2",
    "comm==0.2.3",
    "decorator==5.3.1",
    "executing==2.3.0",
    "ipython==9.12.0",
    "ipython-pygments-lexers==1.1.1",
    "ipywidgets==8.1.9",
    "jedi==0.20.1",
    "jupyterlab-widgets==3.0.17",
    "matplotlib-inline==0.2.2",
    "micropip==0.11.1",
    "packaging==26.1",
    "parso==0.8.7",
    "prompt-toolkit==3.0.53",
    "pure-eval==0.2.4",
    "pygments==2.21.0",
    "stack-data==0.6.3",
    "tqdm==4.70.1",
    "traitlets==5.16.1",
    "wcwidth==0.9.4",
)
DEPENDS = {
    "servesim": ["ipywidgets", "tqdm"],
    "ipywidgets": ["comm", "ipython", "jupyterlab-widgets", "traitlets", "widgetsnbextension"],
    "ipython": [
        "decorator",
        "ipython-pygments-lexers",
        "jedi",
        "matplotlib-inline",
        "prompt-toolkit",
        "pygments",
        "stack-data",
        "traitlets",
    ],
    "stack-data": ["asttokens", "executing", "pure-eval"],
    "jedi": ["parso"],
    "matplotlib-inline": ["traitlets"],
    "prompt-toolkit": ["wcwidth"],
    "piplite": ["micropip"],
    "micropip": ["packaging"],
    "pyodide-kernel": ["comm", "ipykernel", "ipython", "jedi", "piplite"],
}
# Loaded before the first cell, so that nothing is looked for anywhere.
AT_START = ["micropip", "piplite", "pyodide-kernel", "ipykernel", "comm", "ipython", "jedi"]
# Compiled for the browser: these can be had from Pyodide's host only.
ELSEWHERE = (
    "contourpy",
    "cycler",
    "fonttools",
    "kiwisolver",
    "matplotlib",
    "numpy",
    "pillow",
    "pyparsing",
    "python-dateutil",
    "pytz",
    "six",
)
HOST = "https://cdn.jsdelivr.net/pyodide/v{version}/full/"


def lock(pyodide: Path, wheels: Path) -> dict[str, Any]:
    """Return Pyodide's list of packages: ours, and the compiled ones from its own host."""
    whole = json.loads((pyodide / own_wheel.ALL).read_text(encoding="utf-8"))
    version = json.loads((pyodide / "package.json").read_text(encoding="utf-8"))["version"]
    (servesim,) = pyodide.glob("servesim-*.whl")
    packages = {
        name: dict(whole["packages"][name]) for name in ELSEWHERE if name in whole["packages"]
    }
    for package in packages.values():
        package["file_name"] = HOST.format(version=version) + package["file_name"]
    for path, url in [
        *((path, f"packages/{path.name}") for path in sorted(wheels.glob("*.whl"))),
        (servesim, f"../pyodide/{servesim.name}"),
    ]:
        name = key(path.name.split("-")[0])
        packages[name] = own_wheel.entry(path, url, DEPENDS.get(name, ()))
    for package in packages.values():
        package["depends"] = [d for d in package["depends"] if key(d) in map(key, packages)]
    return {**whole, "packages": packages}


# Folders that a reader finds beside the chapters: what they read, and what is there to be changed.
BESIDE = ("chapters/data", "chapters/policies", "assignments")
# The first cell of each chapter: where its reader is.
HERE = """\
*{page} as a notebook that runs in your browser. Change what you like: it stays here, in this
browser. {own} tells how to get a chapter or your policy back, or out.*
"""


def notebooks(folder: Path, site: Path) -> None:
    """Write the chapters that run, and what they read, as a reader of the site finds them."""
    of = lite_text.read_book(site, ROOT / "chapters")
    for path in sorted((ROOT / "chapters").rglob("*.md")):
        if golden.is_notebook(path):
            notebook, book = jupytext.read(path, fmt=golden.MYST), of(path)
            notebook.metadata["kernelspec"] = {
                "name": "python",
                "display_name": "Python (in this browser)",
                "language": "python",
            }
            name = path.relative_to(ROOT).with_suffix("")
            page = lite_text.link(f"{name.as_posix()}.html", "This page of the book")
            own = lite_text.role(book, "ref", "sec-your-policy")
            try:
                cells = lite_text.adapt(notebook.cells, book)
            except lite_text.NotInTheBookError as problem:
                raise lite_text.NotInTheBookError(f"{name}.md: {problem}") from None
            notebook.cells = [
                nbformat.v4.new_markdown_cell(HERE.format(page=page, own=own)),
                *cells,
            ]
            for number, cell in enumerate(notebook.cells):
                cell["id"] = f"cell-{number}"  # not at random: the same tree, the same site
            target = folder / name.with_suffix(".ipynb")
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, target)
    for name in BESIDE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def settings() -> dict[str, Any]:
    """Return JupyterLite's settings: whence the kernel comes."""
    kernel = {
        "pyodideUrl": "./../pyodide/pyodide.mjs",
        "disablePyPIFallback": True,
        "loadPyodideOptions": {"lockFileURL": "./pyodide-lock.json", "packages": AT_START},
    }
    return {
        "jupyter-lite-schema-version": 0,
        "jupyter-config-data": {
            "appName": "Tokens in Flight",
            "litePluginSettings": {KERNEL: kernel},
        },
    }


def fetch(jupyter: Path, into: Path) -> None:
    """Have the wheels in `into`: from PyPI, and from the kernel's own folder."""
    into.mkdir(parents=True, exist_ok=True)
    wanted = {
        f"{key(path.name.split('-')[0])}=={path.name.split('-')[1]}" for path in into.iterdir()
    }
    if not set(WHEELS) <= wanted:
        target = "--only-binary=:all: --python-version 3.14 --platform any --implementation py"
        python = jupyter.with_name("python")
        pip = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, *target.split(), "--abi", "none", "--no-deps", "--dest", into, *WHEELS],
            check=True,
        )
    share = jupyter.parent.parent / "share" / "jupyter" / "labextensions"
    own = share / "@jupyterlite" / "pyodide-kernel-extension" / "static" / "pypi"
    for path in own.glob("*.whl"):
        if not path.name.startswith("widgetsnbextension-3"):
            shutil.copy(path, into)


def main(jupyter: Path, pyodide: Path, site: Path) -> None:
    """Build, or leave what was there."""
    wheels, lite = WORK / "wheels", site / "lite"
    fetch(jupyter, wheels)
    with tempfile.TemporaryDirectory() as folder:
        contents, start = Path(folder, "contents"), Path(folder, "start")
        try:
            notebooks(contents, site)
        except lite_text.NotInTheBookError as problem:
            sys.exit(f"JupyterLite was not built. {problem}")
        start.mkdir()
        (start / "jupyter-lite.json").write_text(json.dumps(settings()), encoding="utf-8")
        shutil.rmtree(lite, ignore_errors=True)
        # A fresh folder each time: what is left of another build would be believed.
        command = [jupyter, "lite", "build", "--lite-dir", start, "--contents", contents]
        apps = ["--apps", "lab", "--no-sourcemaps", "--output-dir", lite.resolve()]
        told = subprocess.run(
            [*command, *apps], cwd=folder, capture_output=True, text=True, check=False
        )
        if told.returncode:
            sys.exit(f"JupyterLite was not built.\n{told.stdout[-3000:]}\n{told.stderr[-3000:]}")
    shutil.copytree(wheels, lite / "packages")
    text = json.dumps(lock(pyodide, wheels), indent=1) + "\n"
    (lite / "pyodide-lock.json").write_text(text, encoding="utf-8")
    print(f"JupyterLite is in {lite}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python tools/lite.py JUPYTER PYODIDE SITE")
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]), Path(sys.argv[3]))
