# SPDX-License-Identifier: MIT
"""The frequency of this machine's time stamp counter, which is that of the emulated processors too."""
import ctypes
import functools
import mmap
import platform
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
RDTSC = bytes.fromhex('0f31 48c1e220 4809d0 c3')
TRIES = 50


def sample(counter):
    """The counter and the time at one moment: of several tries the one that took least."""
    tries = []
    for _ in range(TRIES):
        before = time.monotonic_ns()
        ticks = counter()
        after = time.monotonic_ns()
        tries.append((after - before, ticks, before))
    return min(tries)[1:]


@functools.lru_cache(maxsize=None)
def tsc_khz():
    """Measured in a tenth of a second; 0 where that is not possible."""
    if platform.machine() != 'x86_64':
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    code.write(RDTSC)
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    first, start = sample(counter)
    time.sleep(0.1)
    last, end = sample(counter)
    return round((last - first) * 1000000 / (end - start))
