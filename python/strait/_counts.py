# SPDX-License-Identifier: MIT
"""What the replaced functions of other packages served, and what they left to the original."""
import atexit
import os
import sys
import threading
from typing import Any, Dict, List

from ._lib import ROUTES

_UNITS = ('bytes', 'KiB', 'MiB', 'GiB', 'TiB')


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f'{count:.{1 if unit else 0}f} {_UNITS[unit]}'


class Counts:
    """Tensors and bytes by route, and the reasons why others were left to the original."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tensors = self.bytes = 0
        self.routes: List[int] = [0] * len(ROUTES)
        self.originals: Dict[str, int] = {}

    def add(self, tensors: int, totals: Any) -> None:
        with self._lock:
            self.tensors += tensors
            self.bytes += totals.bytes
            self.routes = [a + b for a, b in zip(self.routes, totals.routes)]

    def left(self, reason: str, number: int = 1) -> None:
        with self._lock:
            self.originals[reason] = self.originals.get(reason, 0) + number

    def summary(self) -> str:
        """One line."""
        by_route = ', '.join(f'{name} {_size(count)}' for name, count in zip(ROUTES, self.routes) if count)
        text = f'safetensors: {self.tensors} tensors, {_size(self.bytes)} read by Strait' + (f' ({by_route})' if by_route else '')
        if self.originals:
            text += f'; {sum(self.originals.values())} left to the original: ' + ', '.join(
                f'{number} {reason}' for reason, number in sorted(self.originals.items(), key=lambda item: -item[1]))
        return text


counts = Counts()


def print_at_exit() -> None:
    """The summary of this process on stderr, if there is anything to say."""
    pid = os.getpid()

    def say() -> None:
        if os.getpid() == pid and (counts.tensors or counts.originals):
            print(f'strait run: {counts.summary()}', file=sys.stderr)

    atexit.register(say)
