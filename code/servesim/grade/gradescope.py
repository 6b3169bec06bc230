"""Gradescope: its results file, and an autograder ready to be uploaded.

The formats are described in Gradescope's autograder documentation
(https://gradescope-autograders.readthedocs.io).
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from ..checks import file_name, instance, maybe, seed_number
from ..errors import InputError
from .assignment import Assignment, FileRule
from .hidden import folder_of, seed_in
from .judge import Mark, Score
from .roster import counting

SETUP = """\
#!/usr/bin/env bash
# Runs once, when the image is built.
set -e
apt-get update
apt-get install -y --no-install-recommends bubblewrap util-linux
for python in python3.11 python3.12 python3; do
  command -v "$python" || apt-get install -y --no-install-recommends "$python" || continue
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    ln -sf "$(command -v "$python")" /usr/local/bin/servesim-python
    break
  fi
done
servesim-python --version
chmod -R go-rwx "$(dirname "$0")"
"""

RUN = """\
#!/usr/bin/env bash
# Runs for each submission. It must end well, whatever was handed in.
root="${{AUTOGRADER:-/autograder}}"
python="$(command -v servesim-python || command -v python3)"
cd "$root/source" || exit 1
PYTHONPATH=code exec "$python" -m servesim.grade results "$root/submission" \\
  --assignment {name} {hidden}--unsafe --out "$root/results/results.json"
"""


def results(score: Score, output: bytes) -> dict[str, Any]:
    """Return a score in Gradescope's format, as the student will see it.

    Of a hidden test only the rule is told that was broken in it. Not even why a policy was stopped
    there: the reason may quote it, and it has seen the test.
    """
    public = {case.name for case in score.assignment.cases}
    why = score.refused
    if why and score.refused_in not in {"", *public}:
        why = "in a hidden test the policy took too much, or did what scores 0"
    tests = [_test(mark, public, why) for mark in score.marks]
    told = why or ("all rules are kept" if score.full else f"next: {score.hint}")
    data: dict[str, Any] = {
        "score": score.points,
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "output": told,
        "tests": tests,
    }
    if output:
        data["output"] += "\n\nprinted:\n" + output[-4000:].decode("utf-8", "replace")
    return data


def _test(mark: Mark, public: set[str], refused: str) -> dict[str, Any]:
    told = [mark.rule.demand]
    if mark.failure is not None:
        hidden = mark.failure.case not in public and not isinstance(mark.rule, FileRule)
        told.append("It is broken in a hidden test." if hidden else str(mark.failure))
        told += [] if hidden else [mark.failure.trace]
    told += [note for note in mark.note.split("; ") if note.partition(":")[0] in public]
    if not mark.full:
        told.append(refused or mark.rule.hint)
    return {
        "name": mark.rule.name,
        "score": mark.points,
        "max_score": float(mark.rule.points),
        "status": "passed" if mark.full else "failed",
        "output": "\n".join(line for line in told if line),
    }


def submitted(folder: str | Path) -> Path | None:
    """Return the file in a submission that counts (see `servesim.grade.roster.counting`)."""
    file_name(folder=folder)
    root = Path(folder)
    if root.is_file():
        return root
    if not root.is_dir():
        raise InputError(f"{root} does not exist; name the folder of the submission, or a file")
    return counting(root, "**/*")


def autograder(assignment: Assignment, hidden: str | Path | None, seed: int | None) -> bytes:
    """Return the autograder as a zip archive.

    Parameters
    ----------
    assignment : Assignment
    hidden : str or Path or None
        Folder of the hidden cases.
    seed : int or None
        In place of the one in ``seed.txt``.

    Raises
    ------
    InputError
    """
    instance(Assignment, assignment=assignment)
    maybe(seed_number, seed=seed)
    package = Path(__file__).resolve().parent.parent
    files: dict[str, tuple[str, int]] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package.parent).as_posix()
        files[f"code/{name}"] = path.read_text(encoding="utf-8"), 0o644
    flag = ""
    if hidden is not None:
        place = folder_of(hidden, assignment)
        files["hidden/hidden.py"] = (place / "hidden.py").read_text(encoding="utf-8"), 0o600
        files["hidden/seed.txt"] = f"{seed_in(place, seed)}\n", 0o600
        flag = "--hidden hidden "
    files["setup.sh"] = SETUP, 0o755
    files["run_autograder"] = RUN.format(name=assignment.name, hidden=flag), 0o755
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (text, mode) in files.items():
            about = zipfile.ZipInfo(name)  # its date is 1980: the same files, the same bytes
            about.external_attr = (0o100000 | mode) << 16
            archive.writestr(about, text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def as_json(data: dict[str, Any]) -> str:
    """Return results as the text of ``results.json``."""
    return json.dumps(data, indent=2) + "\n"
