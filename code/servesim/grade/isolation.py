"""What the system can put around a child process.

A *sealed* process has no network, sees no files but Python's own, can write none, and sees no
other process. Linux gives that by namespaces, through ``bwrap`` (bubblewrap) or ``unshare``
(util-linux). Which of them works depends on the machine, so each is tried before it is trusted.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
"""Where programs and their libraries lie."""

PYTHON: str = sys._base_executable  # type: ignore[attr-defined]  # not that of an environment
FLAGS = ("-S", "-s", "-P", "-B")
"""No site-packages, no folder of the user's, no folder of the script's, no files written."""

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # a set of texts has the same order each time
    "PYTHONBREAKPOINT": "0",  # one that was forgotten does not stop anything
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
"""All that a child has in its environment."""

FIRST_UID = 61_184
UIDS = 4_000
"""Numbers without a name, from which a process run by root gets one that nobody else has."""


@dataclass(frozen=True)
class Isolation:
    """A way to start a process.

    Attributes
    ----------
    name : str
    sealed : bool
        Whether it has no network, reads no files but Python's, and writes none.
    command : callable
        Turns a command into one that runs it so.
    """

    name: str
    sealed: bool
    command: Callable[[Sequence[str]], list[str]]


def _visible() -> list[str]:
    """Return the folders that Python needs, none inside another."""
    wanted = [*SYSTEM, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)]
    wanted.append(str(Path(PYTHON).resolve().parent))
    there = [folder for folder in dict.fromkeys(wanted) if os.path.isdir(folder)]
    return [
        folder
        for folder in there
        if not any(other != folder and folder.startswith(other + "/") for other in there)
    ]


_SETUP = """
set -e
root=/sys
mount -t tmpfs -o size=1m,mode=755 none "$root"
while [ "$1" != -- ]; do
  mkdir -p "$root$(dirname "$1")"
  if [ -L "$1" ]; then
    cp -P "$1" "$root$1"
  else
    mkdir -p "$root$1"
    mount --bind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1"
  fi
  shift
done
shift
mkdir "$root/dev"
: > "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
mount -o remount,bind,ro "$root"
cd "$root"
exec chroot "$root" "$@"
"""
"""Builds a root folder that holds Python and nothing else, and runs a command in it."""


def _unshare(as_root: bool) -> Isolation:
    def wrap(argv: Sequence[str]) -> list[str]:
        spaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        drop = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        if as_root:
            drop = _as_nobody([])
        else:
            spaces += ["--user", "--map-root-user"]
        setup = ["sh", "-c", _SETUP, "sh", *_visible(), "--"]
        return ["unshare", *spaces, "--propagation", "private", *setup, *drop, *argv]

    return Isolation("unshare", True, wrap)


def _bwrap() -> Isolation:
    def wrap(argv: Sequence[str]) -> list[str]:
        bwrap = shutil.which("bwrap") or "bwrap"
        command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session"]
        for folder in _visible():
            if os.path.islink(folder):
                command += ["--symlink", os.readlink(folder), folder]
            else:
                command += ["--ro-bind", folder, folder]
        command += ["--dev", "/dev", "--cap-drop", "ALL", "--chdir", "/"]
        return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--", *argv]

    return Isolation("bwrap", True, wrap)


def _as_nobody(argv: Sequence[str]) -> list[str]:
    """Run a command as a user that root has given to nobody else."""
    uid = str(FIRST_UID + os.getpid() % UIDS)
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *who, *argv]


def _another_user() -> Isolation:
    return Isolation("another user", False, _as_nobody)


def _from_root(way: Isolation) -> Isolation:
    """Return a way that root takes as somebody else: the system lets root start any number."""
    return Isolation(f"{way.name} as another user", True, lambda a: _as_nobody(way.command(a)))


POSSIBLE = os.name == "posix"
"""Whether a process can be bounded here at all."""

NONE = Isolation("a process of its own", False, list)
"""Time, memory and output are bounded, and that is all."""


def candidates() -> list[Isolation]:
    """Return the ways there might be on this machine, the best first."""
    if not POSSIBLE:
        return []
    ways = [_bwrap(), _unshare(as_root=False)]
    if os.getuid() == 0:
        return [_unshare(as_root=True), *map(_from_root, ways), _another_user()]
    return ways


def works(way: Isolation) -> bool:
    """Try whether a process can be started so."""
    command = way.command([PYTHON, *FLAGS, "-c", "print('here')"])
    if shutil.which(command[0]) is None:
        return False
    try:
        tried = subprocess.run(
            command,
            capture_output=True,
            timeout=20,
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0 and tried.stdout == b"here\n"


@functools.cache
def best() -> Isolation:
    """Return the best way that works here."""
    return next((way for way in candidates() if works(way)), NONE)
