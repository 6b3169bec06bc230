"""What the site brings for its Python: the wheel, and the list of packages."""

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import own_wheel
import sizes


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    whole = {"info": {"python": "3.14.2"}, "packages": {"numpy": {"name": "numpy"}}}
    (tmp_path / own_wheel.ALL).write_text(json.dumps(whole))
    (tmp_path / "servesim-0.0.1-0abc-py3-none-any.whl").write_text("an older one")
    own_wheel.main(tmp_path)
    return tmp_path


def built(pyodide: Path) -> Path:
    (path,) = pyodide.glob("*.whl")
    return path


def test_the_wheel_is_the_tree_and_nothing_else_decides(pyodide: Path, tmp_path: Path) -> None:
    again = own_wheel.build(tmp_path / "again")
    data = again.read_bytes()
    assert (again.name, data) == (built(pyodide).name, built(pyodide).read_bytes())
    assert hashlib.sha256(data).hexdigest()[:12] in again.name
    with zipfile.ZipFile(built(pyodide)) as archive:
        held = {n for n in archive.namelist() if n.startswith("servesim/")}
    tree = {
        p.relative_to(own_wheel.CODE).as_posix() for p in own_wheel.CODE.rglob("servesim/**/*.py")
    }
    assert held == tree | {"servesim/py.typed"}


def test_the_wheel_s_record_is_right(pyodide: Path) -> None:
    with zipfile.ZipFile(built(pyodide)) as archive:
        (record,) = (n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
        lines = [line.split(",") for line in archive.read(record).decode().splitlines()]
        assert [name for name, *_ in lines] == archive.namelist()
        for name, digest, size in lines[:-1]:
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            assert (digest, size) == (f"sha256={found.decode()}", str(len(data)))


def test_figures_are_drawn_by_the_wheel_alone(pyodide: Path) -> None:
    """With no site-packages, as in the page."""
    code = (
        f"import sys; sys.path[0:0] = [{str(built(pyodide))!r}];"
        " from servesim.page import answer; import servesim.figs; print(servesim.figs.__file__)"
    )
    told = subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert ".whl" in told.stdout


def test_a_page_s_python_knows_one_package(pyodide: Path) -> None:
    listed = json.loads((pyodide / own_wheel.LOCK).read_text())
    (only,) = listed["packages"].values()
    assert only["file_name"] == built(pyodide).name
    assert (only["name"], only["imports"], only["depends"]) == ("servesim", ["servesim"], [])
    assert only["sha256"] == hashlib.sha256(built(pyodide).read_bytes()).hexdigest()
    assert listed["info"] == {"python": "3.14.2"}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("chapters/intro.html", "pages"),
        ("pyodide/pyodide.asm.wasm", "Python (Pyodide), once a figure starts"),
        ("_static/live/live.mjs", "live figures' scripts and style"),
        ("_static/webpack-macros.html", "theme"),
        ("lite/lab/index.html", "JupyterLite, once it is opened"),
        ("CNAME", "other"),
    ],
)
def test_every_file_belongs_to_a_part(name: str, part: str) -> None:
    assert sizes.part_of(name) == part
