"""How a command ends on an error: with one line, no traceback, and no key in the text.

``import lib`` sets this up for ``python -m lib...`` and ``python -c`` before anything else is
imported, so it covers every error and Ctrl-C, also during imports. A bug in the program still shows
its traceback. Notebooks, tests and a reader's own files are not affected. Keys stay in their
environment variables: in a server's text that is shown or stored they are masked (``redacted``).
"""

from __future__ import annotations

import errno
import html
import io
import json
import linecache
import os
import re
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from urllib.parse import quote, quote_plus

_LIB = Path(__file__).resolve().parent.parent

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The system's error numbers for a full disk, and for a place without write permission."""

_STOPPED = "stopped; what is finished is kept, the same command goes on from here"

_OTHER_FOLDERS = "name other folders: CHR_OUT=folder (results, figures), CHR_CACHE=folder (caches)"
_NEXT = {
    **dict.fromkeys(FULL, f"make room, or {_OTHER_FOLDERS}"),
    **dict.fromkeys(FORBIDDEN, f"see who may read and write there, or {_OTHER_FOLDERS}"),
    errno.ENOTDIR: "a file is where a folder should be: move it away",
    errno.EEXIST: "a file is where a folder should be: move it away",
    errno.EISDIR: "a folder is where a file should be: move it away",
}
_SETTINGS = {
    f"CHR_{name}"
    for name in (
        "CACHE",
        "LLM_KEY",
        "LLM_MODEL",
        "LLM_URL",
        "METHODS",
        "MIRROR",
        "OUT",
        "PROFILE",
        "SET_ASIDE",
        "VERIFY",
    )
}
"""Every CHR_ environment variable that the project reads."""

_AGAIN = "mend that, then run the same command again"


def set_up() -> None:
    """Make errors end this process with one line and no traceback.

    A character that the terminal cannot show is printed as its code. A CHR_ environment variable
    that nobody reads, such as a misspelt one, gives a warning.
    """
    sys.excepthook = _end
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # in another thread than the first, which alone may set one
            signal.signal(signal.SIGINT, _interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in sorted(name for name in os.environ if name.startswith("CHR_")):
        if name not in _SETTINGS:
            known = ", ".join(sorted(_SETTINGS))
            print(f"warning: {name} is not read; there are: {known}", file=sys.stderr)


def line_for(error: BaseException) -> str | None:
    """What to say of an error in one line; None for a mistake of the program."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):  # not installed, another version, or memory is short
        ours = (error.name or "").split(".")[0] in ("lib", "tests")
        return None if ours else f"{text}. Next: make setup"
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return f"not enough memory ({text}). Next: end other programs, or read fewer: LIMIT=n"
    known = isinstance(error, (ValueError, LookupError, RuntimeError, OSError))
    if known and _raised_by_us(error.__traceback__):
        return re.sub(r"^\[Errno \d+\] ", "", text)
    if isinstance(error, OSError) and error.errno:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}. Next: {_NEXT.get(error.errno, _AGAIN)}"
    return None


def _raised_by_us(spec: TracebackType | None) -> bool:
    """Whether a ``raise`` of this project gave the error: its text was written to be read."""
    if spec is None:
        return False
    while spec.tb_next is not None:
        spec = spec.tb_next
    file = spec.tb_frame.f_code.co_filename
    said = linecache.getline(file, spec.tb_lineno).split()
    return Path(file).is_relative_to(_LIB) and said[:1] == ["raise"]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C. In the middle of an import or a finalizer the process ends at once.

    A compiled module that is being loaded swallows a KeyboardInterrupt, or crashes; of a finalizer,
    of the threads' own end or of tqdm's, Python prints it and goes on. Finished work is kept, as
    when a process is killed.
    """
    place = frame
    while place is not None:
        importing = place.f_code.co_filename == "<frozen importlib._bootstrap>"
        if importing or place.f_code.co_name in ("__del__", "_shutdown", "_atexit_signal"):
            os.write(2, f"{_STOPPED}\n".encode())
            os._exit(128 + number)
        place = place.f_back
    signal.default_int_handler(number, frame)


def _end(kind: type[BaseException], error: BaseException, spec: TracebackType | None) -> None:
    """The ``sys.excepthook``. After the first Ctrl-C a second one ends everything at once."""
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print(_STOPPED, file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    if isinstance(error, BrokenPipeError):  # the reader of a pipe has ended, as ``| head`` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    line = line_for(error)
    told = "".join(traceback.format_exception(error)) if line is None else f"error: {line}\n"
    print(redacted(told), end="", file=sys.stderr)


# keys: masked in any server text that is shown or stored -----------------------------------------

KEYS = ("CHR_LLM_KEY", "NCBI_API_KEY", "HF_TOKEN")
"""The environment variables that hold a key."""

BLOT = "[key]"

_SHORTEST = 8

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def redacted(text: str) -> str:
    """``text`` with every key of ``KEYS`` replaced by ``BLOT``, in upper or lower case.

    A key inside JSON, Python, HTML or an address is found too. A value of fewer than 8 characters
    is not treated as a key: it is a placeholder that local servers ask for, such as "none" or
    "EMPTY", and these words may occur in any text.
    """
    for variable in KEYS:
        key = os.environ.get(variable, "").strip()
        if len(key) >= _SHORTEST:
            quoted = json.dumps(key)[1:-1], repr(key)[1:-1], html.escape(key)
            coded = quote(key), quote(key, safe=""), quote_plus(key)
            forms = sorted({key, *quoted, *coded}, key=len, reverse=True)
            text = re.sub("|".join(map(re.escape, forms)), BLOT, text, flags=re.IGNORECASE)
    return text


def refuse_broken_passwords() -> None:
    """ValueError for a proxy whose user or password has a character that ends an address's host.

    Parsers of such an address take the password for a host or port, and print it in their error.
    """
    for variable in (*_PROXIES, *map(str.upper, _PROXIES)):
        user, at, _ = os.environ.get(variable, "").rpartition("@")
        if at and re.search("[#?/]", user.partition("://")[2] or user):
            raise ValueError(
                f"the user or password in {variable} has a sign that an address cannot have "
                "there. Next: write it in code (# is %23, / is %2F, ? is %3F) and export "
                f"{variable} again"
            )
