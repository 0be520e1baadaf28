# SPDX-License-Identifier: MIT
"""Many transfers on a queue of the library, with their routes, their errors and a progress bar."""
import errno
import os
import time
from ctypes import byref, c_char, create_string_buffer, sizeof
from typing import Any, Dict, List, Optional

from ._context import QUEUE_ENTRIES, Context
from ._lib import FOREVER, PACKED_RESULT, PACKED_TRANSFER, ROUTES, Result, RouteReport, Transfer
from ._progress import Progress
from .errors import StraitError

# A longer transfer is cut, so that progress is seen and an interrupt is noticed.
PIECE = 1 << 30
_GROUP = 256
# How long a wait lasts before signals are handled, and a transfer that the calling thread runs.
_SLICE_NS, _RUN_NS = 100_000_000, 250_000_000


class Totals:
    """What was moved: bytes, by route, and how many transfers."""

    def __init__(self) -> None:
        self.bytes = self.transfers = self.requests = 0
        self.routes = [0] * len(ROUTES)
        self.reasons: Dict[str, str] = {}
        self.start = time.monotonic()

    def report(self, into: Optional[Dict[str, Any]]) -> None:
        """Add to a dict of the caller: bytes, seconds, transfers, routes, reasons."""
        if into is None:
            return
        into['bytes'] = into.get('bytes', 0) + self.bytes
        into['transfers'] = into.get('transfers', 0) + self.transfers
        into['seconds'] = into.get('seconds', 0.0) + time.monotonic() - self.start
        routes = into.setdefault('routes', {})
        for name, count in zip(ROUTES, self.routes):
            if count:
                routes[name] = routes.get(name, 0) + count
        into.setdefault('reasons', {}).update(self.reasons)


def reasons(ctx: Context, transfer: Transfer) -> Dict[str, str]:
    """For each route, how it would move the bytes of a transfer, or why it cannot."""
    report, text = RouteReport(size=sizeof(RouteReport)), create_string_buffer(512)
    if ctx.lib.strait_route_query(byref(transfer), byref(report)):
        return {}
    found = {}
    for k, name in enumerate(ROUTES):
        ctx.lib.strait_route_verdict_text(byref(report.verdict[k]), text, len(text))
        found[name] = text.value.decode(errors='replace')
    return found


class Batch:
    """Transfers in one direction. They start when added, in groups, and run until finish().

    A single one is run by the thread that calls finish(): waking a thread for it, and this one at its end, would take a tenth
    of the time of a tensor of 64 MiB.
    """

    def __init__(self, ctx: Context, op: int, routes: int = 0, path: Optional[str] = None,
                 progress: Optional[Progress] = None, explain: bool = False) -> None:
        self._ctx, self._op, self._routes, self._path, self._progress = ctx, op, routes, path, progress
        self._queue: Any = None
        self._requests = bytearray(_GROUP * PACKED_TRANSFER.size)
        self._results = bytearray(_GROUP * PACKED_RESULT.size)
        self._held: List[Any] = []
        self._pending = self._in_flight = 0
        self._first: Optional[bytes] = None
        self._explain = explain
        self._error: Optional[StraitError] = None
        self.totals = Totals()

    def __enter__(self) -> 'Batch':
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def add(self, endpoint: int, file_offset: int, region: Any, region_offset: int, length: int) -> None:
        """One transfer. The region is referenced until the batch is closed."""
        self._held.append(region)
        handle = region.handle.value
        while length:
            step = length if length <= PIECE else PIECE
            if self._pending == _GROUP:
                self.flush()
            PACKED_TRANSFER.pack_into(self._requests, self._pending * PACKED_TRANSFER.size, self._op, self._routes,
                                      endpoint, handle, file_offset, region_offset, step, 0, 0, step, 0, 0)
            self._pending += 1
            file_offset += step
            region_offset += step
            length -= step

    def hold(self, owner: Any) -> None:
        """Reference the owner of a transfer's memory until the batch is closed."""
        self._held.append(owner)

    def flush(self) -> None:
        """Start what was added."""
        if not self._pending:
            return
        self._note_first()
        if self._queue is None:
            self._queue = self._ctx.take_queue()
        while self._in_flight + self._pending > QUEUE_ENTRIES:
            self._fetch(min(self._in_flight, _GROUP // 2))
        if self._error is None:
            n = self._pending
            request = (Transfer * n).from_buffer(self._requests)
            rc = self._ctx.lib.strait_queue_submit(self._queue, request, n)
            del request
            if rc:
                raise self._failure(-rc, 'cannot start the transfers')
            self._in_flight += n
            self.totals.requests += n
        self._pending = 0

    def _note_first(self) -> None:
        if self._first is None:
            self._first = bytes(self._requests[:PACKED_TRANSFER.size])
            if self._explain:
                self.totals.reasons = reasons(self._ctx, Transfer.from_buffer_copy(self._first))

    def _run(self) -> None:
        """Run the one transfer that was added on this thread, in slices between which signals are handled."""
        self._note_first()
        self._pending = 0
        transfer, result, run = Transfer.from_buffer_copy(self._requests), Result(), self._ctx.lib.strait_transfer_run
        self.totals.requests += 1
        limit = _RUN_NS
        while True:
            run(byref(transfer), limit, byref(result))
            self._count(result.bytes, result.route_bytes)
            if result.status != -errno.ETIMEDOUT or limit == FOREVER:
                break
            if not result.bytes:
                limit = FOREVER  # a file on a network may fail with that number as well
            transfer.endpoint_offset += result.bytes
            transfer.region_offset += result.bytes
            transfer.length -= result.bytes
        self.totals.transfers += 1
        self._note(transfer.length, result.bytes, result.status, result.routes)

    def poll(self) -> int:
        """Fetch the results that are there. Returns how many transfers are in flight."""
        if self._in_flight:
            self._fetch(0)
        if self._error is not None:
            raise self._error
        return self._in_flight

    def finish(self) -> Totals:
        """Wait for all transfers. Raises the first failure."""
        if self._pending == 1 and not self._in_flight and self._error is None:
            self._run()
        self.flush()
        while self._in_flight:
            self._fetch(min(self._in_flight, _GROUP))
        if self._error is not None:
            raise self._error
        return self.totals

    def close(self) -> None:
        """End the batch. Transfers in flight are canceled and waited for."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            self._ctx.put_queue(queue, idle=self._in_flight == 0)
        self._held.clear()
        if self._progress is not None:
            self._progress.end()

    def _fetch(self, minimum: int) -> None:
        lib, size = self._ctx.lib, PACKED_RESULT.size
        buffer = (c_char * len(self._results)).from_buffer(self._results)
        n = lib.strait_queue_wait(self._queue, minimum, _GROUP, _SLICE_NS if minimum else 0, buffer)
        del buffer
        if n < 0:
            raise self._failure(-n, 'cannot fetch results')
        self._in_flight -= n
        self.totals.transfers += n
        for k in range(n):
            wanted, done, status, _, routes, _, *by_route = PACKED_RESULT.unpack_from(self._results, k * size)
            self._count(done, by_route)
            self._note(wanted, done, status, routes)

    def _count(self, done: int, by_route: Any) -> None:
        totals = self.totals
        totals.bytes += done
        for r in range(len(ROUTES)):
            totals.routes[r] += by_route[r]
        if self._progress is not None:
            self._progress.add(done)

    def _note(self, wanted: int, done: int, status: int, routes: int) -> None:
        if (status or done != wanted) and self._error is None:
            self._error = self._failure(-status if status else errno.ENODATA,
                                        'the transfer failed' if status else 'the file ends early', routes)

    def _failure(self, number: int, what: str, routes: int = 0) -> StraitError:
        mask = routes or self._routes
        route = next((name for k, name in enumerate(ROUTES) if mask >> k & 1), None)
        why = None
        if self._first is not None:
            why = reasons(self._ctx, Transfer.from_buffer_copy(self._first)).get(route or '')
        if route is not None and number == errno.EOPNOTSUPP and why:
            what = f'{what}: the route {route} is not possible: {why}'
        return StraitError(number, f'{what}: {os.strerror(number)}', self._path, route=route, reason=why)
