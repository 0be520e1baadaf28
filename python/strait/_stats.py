# SPDX-License-Identifier: MIT
"""The counters of the process."""
from ctypes import byref, sizeof
from typing import Any, Dict

from ._context import context
from ._lib import ROUTES, Stats
from ._memory import segments
from .errors import check


def stats() -> Dict[str, Any]:
    """What this package has moved in this process: counters, and bytes read and written by route."""
    ctx, counters = context(), Stats(size=sizeof(Stats))
    check(ctx.lib.strait_stats_get(ctx.handle, byref(counters)), 'cannot read the counters')
    result: Dict[str, Any] = {name: getattr(counters, name) for name, _ in Stats._fields_ if name not in ('size', 'route')}
    result['imported_segments'] = segments(ctx).imports
    result['routes'] = {name: {'read': counters.route[k].read_bytes, 'written': counters.route[k].write_bytes,
                               'transfers': counters.route[k].transfers} for k, name in enumerate(ROUTES)}
    return result
