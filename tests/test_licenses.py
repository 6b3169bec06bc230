"""What the site brings of others, and under which licenses."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import licenses

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "chapters" / "licenses.md").read_text(encoding="utf-8")


def make_wheel(folder: Path, metadata: str, **files: str) -> Path:
    path = folder / "lite" / "packages" / "thing-1.0-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing-1.0.dist-info/METADATA", f"Name: thing\nVersion: 1.0\n{metadata}")
        for name, text in files.items():
            archive.writestr(f"thing-1.0.dist-info/{name}", text)
    return path


@pytest.mark.parametrize("name", licenses.IN_THE_PAGES)
def test_each_package_of_the_pages_has_its_license_and_a_place_in_the_list(name: str) -> None:
    part = licenses.installed(name)
    assert len(part.text) > 500
    assert part.license
    assert name in PAGE


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ("License-Expression: MIT\n", "MIT"),
        ("License: BSD\n", "BSD"),
        ("Classifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        (f"License: {'a text as long as a license ' * 9}\n", ""),
        ("", ""),
    ],
)
def test_a_wheel_says_its_license(tmp_path: Path, metadata: str, named: str) -> None:
    part = licenses.wheel(make_wheel(tmp_path, metadata, LICENSE="Do as you like."))
    assert part == ("thing", "1.0", named, "Do as you like.")


def test_a_part_of_unknown_license_is_an_error(tmp_path: Path) -> None:
    make_wheel(tmp_path, "", AUTHORS="nobody")
    told = licenses.main(tmp_path)
    assert told is not None
    assert "thing 1.0" in told
    assert not (tmp_path / "licenses.txt").exists()


def test_the_file_holds_every_part(tmp_path: Path) -> None:
    make_wheel(tmp_path, "", LICENSE="Do as you like.")
    bundle = tmp_path / "lite" / "build" / "third-party-licenses.json"
    bundle.parent.mkdir()
    small = {"name": "small", "versionInfo": "2", "licenseId": "ISC", "extractedText": ""}
    bundle.write_text(json.dumps({"packages": [small]}), encoding="utf-8")
    for name in ("mathjax", "pyodide"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "LICENSE").write_text(f"The license of {name}.", encoding="utf-8")
    assert licenses.main(tmp_path) is None
    text = (tmp_path / "licenses.txt").read_text(encoding="utf-8")
    for said in ("thing 1.0", "Do as you like.", "small 2\nISC", "The license of mathjax."):
        assert said in text


# ------------------------------------------------------------------------ the built site


@pytest.fixture(scope="module")
def site(pytestconfig: pytest.Config) -> Path:
    site: Path | None = pytestconfig.getoption("--site")
    if site is None:
        pytest.skip("no built site was named: run `make pages`, or add --site _build/html")
    return site


def test_the_built_site_lists_what_it_brings(site: Path) -> None:
    """A wheel or an extension that is new in the site is named on the page as well."""
    found = {licenses.wheel(path).name for path in site.glob("lite/packages/*.whl")}
    found |= {
        json.loads(path.read_text(encoding="utf-8"))["name"].rpartition("/")[2]
        for path in site.glob("lite/extensions/**/package.json")
        if (path.parent / "install.json").exists()
    }
    assert len(found) > 10
    assert not {name for name in found if name.lower() not in PAGE.lower()}


def test_the_built_site_holds_the_texts(site: Path) -> None:
    text = (site / "licenses.txt").read_text(encoding="utf-8")
    assert all(part.known for part in licenses.parts(site))
    assert "Apache License" in text
    assert text == licenses.written(licenses.parts(site))
