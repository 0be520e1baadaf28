# SPDX-License-Identifier: MIT
"""A bar for long transfers on a terminal."""
import os
import shutil
import sys
import time
from typing import Optional

_DELAY, _EVERY = 1.0, 0.1


class Progress:
    """Bytes moved so far. It shows itself after a second, on a terminal only, and leaves the line empty."""

    def __init__(self, total: int, label: str, wanted: Optional[bool]) -> None:
        self._total, self._label, self._done, self._shown = total, label, 0, False
        self._start = time.monotonic()
        self._next = self._start + _DELAY
        self._on = total > 0 and wanted is not False and _is_terminal()

    @property
    def on(self) -> bool:
        return self._on

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic() if self._on else 0.0
        if self._on and now >= self._next:
            self._next, self._shown = now + _EVERY, True
            rate = self._done / (now - self._start)
            text = f'{self._label} {100 * self._done // self._total:3d}%  {rate / 1e9:.2f} GB/s'
            room = shutil.get_terminal_size().columns - len(text) - 5
            bar = ''
            if room >= 10:
                full = min(room, 40) * self._done // self._total
                bar = ' [' + '#' * full + ' ' * (min(room, 40) - full) + ']'
            sys.stderr.write('\r' + text + bar + '\x1b[K')
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            self._shown = False
            sys.stderr.write('\r\x1b[K')
            sys.stderr.flush()


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get('TERM') != 'dumb'
    except (AttributeError, ValueError):
        return False
