"""A student's own policy file: loaded as it is now, and brought back as the book ships it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import servesim as ss
from servesim import spec
from servesim.book import reset
from servesim.errors import InputError
from servesim.policies import Continuous

ROOT = Path(__file__).resolve().parent.parent
STARTER = ROOT / "chapters" / "policies" / "my_policy.py"


def test_the_starter_is_continuous_batching() -> None:
    requests = ss.workload.poisson(40, 2, "azure_conv", "azure_conv", seed=5)
    mine = ss.simulate(requests, spec.policy(f"{STARTER}:MyPolicy:slots=4"))
    theirs = ss.simulate(requests, Continuous(4))
    assert [r.e2e_ns for r in mine.finished] == [r.e2e_ns for r in theirs.finished]


def test_a_change_is_seen_at_once(tmp_path: Path) -> None:
    """Of the same length and within the same second, as a script or a fast typist makes it."""
    file = tmp_path / "policy.py"
    for number in range(3):
        file.write_text(f"class P:\n    number = {number}\n    def plan(self, view): ...\n")
        assert spec.policy(f"{file}:P").number == number  # type: ignore[attr-defined]
    assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of a repository of its own; its folder is the current one."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.py").write_bytes(b"shipped\r\n")
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return Path("policies/mine.py")


def files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.parent.iterdir()}


def test_reset_keeps_what_was_there(shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (b"first", b"second"):
        shipped.write_bytes(text)
        reset(str(shipped))
    assert files(shipped) == {
        "mine.py": b"shipped\r\n",
        "mine_1.py": b"first",
        "mine_2.py": b"second",
    }
    assert "Yours is kept as " + str(shipped.with_name("mine_2.py")) in capsys.readouterr().out


def test_reset_of_what_is_unchanged_leaves_no_copy(
    shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reset(shipped)
    assert files(shipped) == {"mine.py": b"shipped\r\n"}
    assert "already" in capsys.readouterr().out


def test_reset_brings_a_deleted_file_back(shipped: Path) -> None:
    shipped.unlink()
    reset(shipped)
    assert files(shipped) == {"mine.py": b"shipped\r\n"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("policies/own.py", "has no file"),
        ("policies/none.py", "has no file"),
        ("nowhere/none.py", "has no file"),
        ("policies", "is a folder"),
    ],
)
def test_reset_of_what_the_book_does_not_have(shipped: Path, name: str, words: str) -> None:
    (shipped.parent / "own.py").write_text("my own")
    before = files(shipped)
    with pytest.raises(InputError, match=words):
        reset(name)
    assert files(shipped) == before


def test_reset_without_git(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped.write_text("mine")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="repository"):
        reset(shipped)
    assert files(shipped) == {"mine.py": b"mine"}
