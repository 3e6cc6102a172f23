"""`tensorwire` as a process: in a pipe, and in a terminal of its own."""

import os
import pty
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "tensorwire"]
QUIET = {"NO_COLOR": "", "TERM": "xterm-256color", "COLORTERM": "", "COLUMNS": "", "LINES": ""}


# Not pty.fork: what other tests have loaded into this process warns of a fork.
ATTACH = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1],"
    " sys.argv[1:])"
)


class Ended(NamedTuple):
    returncode: int
    text: str


def run(*arguments, **options):
    """In a pipe."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, **options
    )


def in_terminal(
    *arguments, columns=100, keys=b"", when=b"", seconds=60, command=None, **environment
):
    """In a pseudo-terminal, standard output and error both; `keys` are typed once `when` was
    printed.
    """
    import fcntl
    import termios

    terminal, other = pty.openpty()
    words = [sys.executable, "-c", ATTACH, *(command or COMMAND), *map(str, arguments)]
    around = {**os.environ, **QUIET, **environment}
    process = subprocess.Popen(
        words, stdin=other, stdout=other, stderr=other, env=around, start_new_session=True
    )
    os.close(other)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    out, typed, end = b"", not keys, time.monotonic() + seconds
    try:
        while True:
            if not typed and when in out:
                os.write(terminal, keys)
                typed = True
            if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                process.kill()
                raise AssertionError(f"still running after {seconds} s: {out!r}")
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                break
            out += piece
    finally:
        status = process.wait()
        os.close(terminal)
    return Ended(status, out.decode().replace("\r\n", "\n"))


def without_rich(folder):
    """An environment in which rich cannot be imported, as if it were not installed."""
    package = Path(folder) / "hidden" / "rich"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('rich is hidden')\n")
    return {"PYTHONPATH": str(package.parent)}
