# SPDX-License-Identifier: MIT
"""The log of the library on stderr: the environment variable STRAIT_LOG is the highest level, error, warn, info or debug."""
import os
import sys
import time
from typing import Optional

from ._lib import LOG_FUNCTION, ContextOpts, sizeof

_LEVELS = ('error', 'warn', 'info', 'debug')


def write(text: str) -> None:
    """A line with the time of the monotonic clock, in one call: other threads write as well."""
    os.write(2, f'[{time.monotonic():.6f}] strait: {text}\n'.encode(errors='replace'))


def _line(_: object, level: int, text: bytes) -> None:
    name = _LEVELS[level - 1] if 1 <= level <= len(_LEVELS) else str(level)
    write(f'{name}: {text.decode(errors="replace")}')


_function = LOG_FUNCTION(_line)  # the library calls it as long as the process runs


def options() -> Optional[ContextOpts]:
    """The options of a context that logs. None: nothing is to be logged."""
    name = os.environ.get('STRAIT_LOG', '')
    if not name:
        return None
    if name not in _LEVELS:
        print(f'strait: STRAIT_LOG={name} is ignored: it is one of {", ".join(_LEVELS)}', file=sys.stderr)
        return None
    return ContextOpts(size=sizeof(ContextOpts), log_level=_LEVELS.index(name) + 1, log=_function)
