"""What must hold of the repository as a whole."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import serve

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "code" / "servesim"
# The rest runs in the browser too, where only Python itself is at hand.
MAY_IMPORT_MORE = {"book", "cli", "explore", "output", "plots"}
CORE = [path for path in sorted(CODE.rglob("*.py")) if path.stem not in MAY_IMPORT_MORE]


def files() -> list[Path]:
    """Return the files that belong to the repository, new ones included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("this needs git and a checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_files() -> list[tuple[str, str]]:
    """Return name and text of each file that is text."""
    found = []
    for path in files():
        try:
            found.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


# --- the folder called `code`


def test_code_is_a_folder_and_not_a_package() -> None:
    assert not (ROOT / "code" / "__init__.py").exists(), "it would shadow the module `code`"


def test_the_standard_library_s_code_is_still_found() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import code, pdb; print(code.InteractiveConsole, code.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert str(ROOT / "code") not in told.stdout


# --- the core imports nothing but the standard library


def foreign_imports(source: str) -> list[str]:
    """Return the modules that a source imports from outside servesim and the standard library.

    Imports inside functions count; those for the type checker alone do not.
    """
    tree = ast.parse(source)
    only_for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: list[str] = []
    for node in ast.walk(tree):
        if node in only_for_types:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
    known = {*sys.stdlib_module_names, "servesim"}
    return [name for name in names if name.partition(".")[0] not in known]


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.relative_to(CODE).as_posix())
def test_the_core_imports_only_the_standard_library(path: Path) -> None:
    assert foreign_imports(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import json, numpy as np", ["numpy"]),
        ("from matplotlib.figure import Figure", ["matplotlib.figure"]),
        ("def draw():\n    import ipywidgets", ["ipywidgets"]),
        ("if True:\n    from yaml import load", ["yaml"]),
        ("from . import kv\nfrom servesim.cost import Affine\nimport heapq", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy", []),
    ],
)
def test_a_foreign_import_would_be_found(source: str, found: list[str]) -> None:
    assert foreign_imports(source) == found


# --- one place for the two addresses

SETTINGS = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
REPOSITORY = SETTINGS["repository"]["url"]
SITE = SETTINGS["html"]["baseurl"]


def other_addresses(text: str) -> list[str]:
    """Return the addresses of this book's repository or site that `_config.yml` does not name."""
    owner, name = REPOSITORY.removesuffix("/").split("/")[-2:]
    ours = rf"(?:{re.escape(name)}|tokens-in-flight)(?![\w-])"
    right = {f"github.com/{owner}/{name}", f"mybinder.org/v2/gh/{owner}/{name}"}
    right.add(SITE.removesuffix("/").split("://")[1])
    hosts = r"(?:github\.com/|mybinder\.org/v2/gh/)[\w.-]+/|[\w-]+\.github\.io/"
    return [found for found in re.findall(rf"(?:{hosts}){ours}", text) if found not in right]


def test_all_files_name_the_addresses_set_in_config_yml() -> None:
    wrong = {name: found for name, text in text_files() if (found := other_addresses(text))}
    wrong.pop("tests/test_project.py", None)
    listed = "".join(f"\n  {name}: {', '.join(sorted(set(wrong[name])))}" for name in sorted(wrong))
    # Not `assert not wrong`: pytest would cut a long list short.
    assert not listed, f"_config.yml says {REPOSITORY} and {SITE}; other addresses:{listed}"


def test_another_address_would_be_found() -> None:
    assert other_addresses(f"see {REPOSITORY}/issues and {SITE}chapters/intro.html") == []
    assert other_addresses("https://github.com/other/tokens-in-flight") != []
    assert other_addresses("https://mybinder.org/v2/gh/other/tokens-in-flight/main") != []
    assert other_addresses("https://other.github.io/tokens-in-flight/") != []
    assert other_addresses("https://github.com/other/project") == []


# --- nothing of the machine on which it was written

# A folder below one of these is somebody's own.
SOMEBODYS_FOLDER = re.compile(r"(?<![\w.~:/<{-])/(?:home|root|Users|work)/[\w.-]+")


def test_no_file_names_a_folder_of_one_machine() -> None:
    wrong = {
        name: found for name, text in text_files() if (found := SOMEBODYS_FOLDER.findall(text))
    }
    wrong.pop("tests/test_project.py", None)
    assert not wrong


def test_a_machine_s_folder_would_be_found() -> None:
    assert SOMEBODYS_FOLDER.search("see /home/ada/book/chapters")
    assert not SOMEBODYS_FOLDER.search("https://example.org/home/page and chapters/home/x")


# --- Binder


def test_binder_would_build_this_repository() -> None:
    pytest.importorskip("repo2docker", reason="the extra `dev` brings repo2docker")
    assert os.access(ROOT / ".binder" / "postBuild", os.X_OK)
    dry = subprocess.run(
        [sys.executable, "-m", "repo2docker", "--no-build", "--debug", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    said = dry.stdout + dry.stderr
    assert dry.returncode == 0, said
    assert ".binder/requirements.txt" in said
    assert ".binder/postBuild" in said
    assert "3.11" in said


# --- the locks


def locked(name: str) -> dict[str, tuple[Requirement, int]]:
    """Return each package of a lock, with the number of its hashes."""
    joined = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in joined.splitlines():
        said, *hashes = line.partition("#")[0].split("--hash=sha256:")
        if said.strip():
            wanted = Requirement(said)
            found[canonicalize_name(wanted.name)] = (wanted, len(hashes))
    return found


def asked(extra: str = "") -> list[Requirement]:
    """Return what requirements.txt, or an extra of pyproject.toml, asks for by version."""
    if not extra:
        lines = [
            line.partition("#")[0].strip()
            for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        ]
        return [Requirement(line) for line in lines if line and not line.startswith("-")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        wanted
        for line in extras["optional-dependencies"][extra]
        for wanted in (
            asked(*Requirement(line).extras)
            if line.startswith("servesim[")
            else [Requirement(line)]
        )
    ]


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", [""]),
        ("tools/dev.lock", ["", "dev"]),
        ("tools/lite.lock", ["lite"]),
    ],
)
def test_a_lock_gives_what_is_asked_for(lock: str, extras: list[str]) -> None:
    """`make lock` was run after the last change of a version, and no file comes without a hash."""
    found = locked(lock)
    for wanted in [wanted for extra in extras for wanted in asked(extra)]:
        (only,) = found[canonicalize_name(wanted.name)][0].specifier
        assert wanted.specifier.contains(only.version), f"{lock}: {wanted}; run `make lock`"
    assert not [name for name, (_, hashes) in found.items() if not hashes]
    assert all(str(wanted.specifier).startswith("==") for wanted, _ in found.values())


def test_the_developer_s_lock_only_adds_to_the_reader_s() -> None:
    mine, reader = locked("tools/dev.lock"), locked("requirements.lock")
    assert {name: mine[name][0].specifier for name in reader} == {
        name: wanted.specifier for name, (wanted, _) in reader.items()
    }


# --- what `make book` opens


@pytest.mark.parametrize(("error", "told"), [(ConnectionResetError, False), (ValueError, True)])
def test_a_browser_that_leaves_is_no_news(
    error: type[Exception], told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve.listen(tmp_path, 0) as server:
        try:
            raise error
        except error:
            server.handle_error(None, ("127.0.0.1", 1))
    assert bool(capsys.readouterr().err) == told
