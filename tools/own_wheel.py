"""Build servesim's wheel from this tree and tell Pyodide about it.

``python tools/own_wheel.py FOLDER`` writes the wheel into Pyodide's FOLDER, and beside it a list of
packages, `servesim-lock.json`, that holds servesim alone: a page's Python can load nothing else,
from nowhere else.

The wheel is written here, not by pip: that would need a network for every changed line, and
would leave a folder `build` in which deleted modules live on. The same tree gives the same
bytes, and the name holds a digest of them, so that no cache can serve an old one for a new one.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "code"
ALL = "pyodide-lock.json"
LOCK = "servesim-lock.json"


def contents(project: dict[str, Any]) -> dict[str, bytes]:
    """Return the wheel's files by name: the package, and what the format asks for."""
    files = {
        path.relative_to(CODE).as_posix(): path.read_bytes()
        for path in sorted((CODE / "servesim").rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    }
    info = f"servesim-{project['version']}.dist-info"
    about = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
    }
    wheel = {
        "Wheel-Version": "1.0",
        "Generator": "tools/own_wheel.py",
        "Root-Is-Purelib": "true",
        "Tag": "py3-none-any",
    }
    for name, fields in (("METADATA", about), ("WHEEL", wheel)):
        files[f"{info}/{name}"] = "".join(f"{k}: {v}\n" for k, v in fields.items()).encode()
    for name in project["license-files"]:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return files


def pack(files: dict[str, bytes]) -> bytes:
    """Return a zip archive that depends on nothing but `files`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            # With its default date, 1980, in place of today's.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def build(folder: Path) -> Path:
    """Write the wheel into `folder`, in place of an older one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    data = pack(contents(project))
    # A build tag starts with a digit.
    tag = f"0{hashlib.sha256(data).hexdigest()[:12]}"
    name = f"servesim-{project['version']}-{tag}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("servesim-*.whl"):
        old.unlink()
    (folder / name).write_bytes(data)
    return folder / name


def key(name: str) -> str:
    """Return a package's name as lists of packages spell it."""
    return name.lower().replace("_", "-")


def entry(path: Path, url: str, depends: Sequence[str] = ()) -> dict[str, Any]:
    """Return the line of Pyodide's list for a wheel that lies at `url`."""
    name, version = path.name.split("-")[:2]
    with zipfile.ZipFile(path) as archive:
        tops = {n.split("/")[0] for n in archive.namelist() if n.endswith(".py")}
    modules = sorted(t.removesuffix(".py") for t in tops if not t.endswith((".data", ".dist-info")))
    return {
        "name": key(name),
        "version": version,
        "file_name": url,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "install_dir": "site",
        "package_type": "package",
        "imports": modules,
        "depends": list(depends),
        "unvendored_tests": False,
    }


def lock(wheel: Path) -> dict[str, Any]:
    """Return Pyodide's list of packages with servesim as the only one."""
    whole = json.loads((wheel.parent / ALL).read_text(encoding="utf-8"))
    return {**whole, "packages": {"servesim": entry(wheel, wheel.name)}}


def main(folder: Path) -> None:
    """Run the command."""
    if not (folder / ALL).is_file():
        sys.exit(f"{folder} holds no Pyodide: run `python tools/vendor.py pyodide {folder}` first.")
    wheel = build(folder)
    (folder / LOCK).write_text(json.dumps(lock(wheel), indent=1) + "\n", encoding="utf-8")
    print(f"{wheel.name} ({wheel.stat().st_size / 1000:.0f} kB) is in {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/own_wheel.py FOLDER")
    main(Path(sys.argv[1]))
