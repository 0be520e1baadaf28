# SPDX-License-Identifier: MIT
"""Choosing programs by name, the same way in scripts/run-tests and lab/run."""
import fnmatch
import re


def chosen(names, patterns):
    """
    The @names that @patterns mean, all of them where there is no pattern. A pattern is the name of a program, or a pattern
    with *, ? or [, or else a part of names.
    """
    names = list(names)
    if not patterns:
        return set(names)
    found = set()
    for pattern in patterns:
        if pattern in names:
            found.add(pattern)
        elif re.search(r'[*?\[]', pattern):
            found.update(fnmatch.filter(names, pattern))
        else:
            found.update(name for name in names if pattern in name)
    return found
