# SPDX-License-Identifier: MIT
"""The exception of this package."""
import os
from typing import Optional


class StraitError(OSError):
    """A call failed. errno and strerror have the reason, filename the file.

    route: the route that was required or that the failed bytes travelled, or None.
    reason: why that route was not possible, or None.
    """

    route: Optional[str] = None
    reason: Optional[str] = None

    def __init__(self, *args: object, route: Optional[str] = None, reason: Optional[str] = None) -> None:
        super().__init__(*args)
        self.route, self.reason = route, reason

    # OSError takes the arguments apart in __new__, which must accept the keywords as well.
    def __new__(cls, *args: object, route: Optional[str] = None, reason: Optional[str] = None) -> 'StraitError':
        return super().__new__(cls, *args)


def check(rc: int, what: str, path: Optional[str] = None) -> int:
    """Return what a call of the library returned, or raise what its negative errno means."""
    if rc < 0:
        raise StraitError(-rc, f'{what}: {os.strerror(-rc)}', path)
    return rc
