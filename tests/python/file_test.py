#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""strait.File: reads and writes of arrays, futures, streams. TAP."""
import ctypes
import errno
import gc
import os
import threading

from common import expect, expect_error, folder, main, needs_numpy, np, strait, test, write
from strait._context import context


def device_tensor(path, data):
    """Bytes in memory of the emulated device."""
    write(f'{path}/tensor', {'a': ('U8', [len(data)], data)})
    return strait.load_file(f'{path}/tensor', 'emu:0', framework='strait')['a']


@test
def bytes_come_back_from_any_offset():
    data = os.urandom(1 << 20)
    with folder() as path, strait.File(f'{path}/f', 'w+') as file:
        expect(file.pwrite(data) == len(data) and file.size == len(data), 'written')
        for offset, count in ((0, 1), (0, 1 << 20), (1, 4097), (4096, 4096), (999, 100000), ((1 << 20) - 1, 1)):
            room = bytearray(count)
            expect(file.pread(room, offset) == count and bytes(room) == data[offset:offset + count], offset)
        room = bytearray(100)
        expect(file.pread(room, (1 << 20) - 40) == 40 and room[40:] == bytes(60), 'the end of the file')
        expect(file.pread(room, 1 << 30) == 0 and file.pread(bytearray()) == 0, 'behind it')
        expect(file.pread(room, 7, size=10) == 10 and bytes(room[:10]) == data[7:17], 'a part of an array')
        file.sync()
    expect(file.closed, 'closed')


@test
def memory_of_a_device():
    data = os.urandom(300_000)
    with folder() as path:
        tensor = device_tensor(path, data)
        with strait.File(f'{path}/f', 'w+') as file:
            expect(file.pwrite(tensor, 5000) == len(data), 'written')
            other = device_tensor(path, bytes(len(data)))
            expect(file.pread(other, 5000) == len(data) and other.tobytes() == data, 'read')
            reasons = file.explain(other)
            expect(set(reasons) == {'p2p', 'pagecache', 'staged', 'host'} and all(reasons.values()), reasons)
            error = expect_error(errno.EOPNOTSUPP, 'not possible', file.pread, other, route='host')
            expect(error.route == 'host' and 'device memory' in error.reason, error.reason)


@needs_numpy
def arrays_of_every_kind():
    data = np.arange(10000, dtype='<i4')
    with folder() as path, strait.File(f'{path}/f', 'w+') as file:
        file.pwrite(data)

        class Interface:
            """Only an array interface."""
            def __init__(self, array):
                self.__array_interface__ = array.__array_interface__
                self.array = array

        class Dlpack:
            """Only DLPack."""
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        for wrap in (lambda a: a, Interface, Dlpack, memoryview, lambda a: a.reshape(100, 100)):
            room = np.zeros(10000, '<i4')
            expect(file.pread(wrap(room)) == data.nbytes and np.array_equal(room, data), wrap)
        room = np.zeros((100, 100), '<i4')
        for wrap in (lambda a: a.T, lambda a: a[:, :5], lambda a: Interface(a[:, :5]), lambda a: Dlpack(a.T)):
            expect_error(errno.EINVAL, 'not contiguous', file.pread, wrap(room))
        room.flags.writeable = False
        expect_error(errno.EINVAL, 'read-only', file.pread, room)
        expect_error(errno.EINVAL, 'read-only', file.pread, bytes(10))
        expect_error(errno.EINVAL, 'is not an array', file.pread, 3)
        expect(file.pwrite(room) == room.nbytes, 'a write reads only')


@test
def futures():
    data = os.urandom(1 << 20)
    with folder() as path:
        with strait.File(f'{path}/f', 'w+') as file:
            writes = [file.submit_write(data[k << 12:k + 1 << 12], k << 12) for k in range(256)]
            expect([w.result() for w in writes] == [4096] * 256, 'written')
            rooms = [bytearray(1 << 10) for _ in range(3000)]
            reads = [file.submit_read(room, k % 1024 << 10) for k, room in enumerate(rooms)]  # more than a queue has room for
            expect(all(read.result(10) == 1024 and read.done() and read.exception() is None for read in reads), 'read')
            expect(all(bytes(room) == data[k % 1024 << 10:(k % 1024) + 1 << 10] for k, room in enumerate(rooms)), 'bytes')
            expect(sum(reads[0].route_bytes.values()) == 1024, reads[0].route_bytes)
            late = file.submit_read(bytearray(1 << 20))
        expect(late.done() and late.result() == 1 << 20, 'closing waits')
        expect(late.cancel() is False, 'too late')
        with strait.File(f'{path}/f') as file:
            failed = file.submit_write(b'x')
            expect_error(errno.EBADF, '', failed.result)
            expect(failed.exception().errno == errno.EBADF, 'and again')
        expect_error(errno.EBADF, 'closed', file.pread, bytearray(1))


@test
def futures_on_many_threads():
    data = os.urandom(1 << 18)
    with folder() as path:
        with open(f'{path}/f', 'wb') as file:
            file.write(data)
        problems = []
        with strait.File(f'{path}/f') as file:
            def work(first):
                for k in range(first, 200, 4):
                    room = bytearray(1000)
                    if file.submit_read(room, k * 1000).result(30) != 1000 or bytes(room) != data[k * 1000:k * 1000 + 1000]:
                        problems.append(k)

            threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        expect(not problems, problems)


@test
def a_file_that_is_dropped_stops_its_transfers():
    with folder() as path:
        with open(f'{path}/f', 'wb') as out:
            out.truncate(64 << 20)
        file = strait.File(f'{path}/f')
        rooms = [bytearray(4 << 20) for _ in range(16)]
        futures = [file.submit_read(room, k << 22) for k, room in enumerate(rooms)]
        del futures, file
        gc.collect()  # a file and its transfers in flight reference each other
        rooms[0][:] = b'\xff' * (4 << 20)
        expect(rooms[0].count(b'\xff') == 4 << 20, 'nothing writes to it any more')


@test
def transfers_on_a_stream():
    """They start after the work before them: on the emulated device that is a host function."""
    data = os.urandom(100_000)
    with folder() as path:
        tensor = device_tensor(path, bytes(len(data)))
        with open(f'{path}/f', 'wb') as out:
            out.write(data)
        with strait.File(f'{path}/f', 'r+') as file, strait.Stream('emu:0') as stream:
            gate, order = threading.Event(), []
            wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20) and order.append('before'))
            lib = context().lib
            expect(lib.strait_stream_call(stream.handle, ctypes.cast(wait, ctypes.c_void_p), None) == 0, 'enqueued')
            read = file.pread(tensor, stream=stream)
            written = file.pwrite(tensor, len(data), stream=stream)
            expect(not read.done() and not written.done() and tensor.tobytes() == bytes(len(data)), 'it waits for its turn')
            expect_error(errno.ETIMEDOUT, '', read.result, 0.05)
            gate.set()
            expect(read.result() == len(data) and written.result() == len(data), 'both')
            expect(order == ['before'] and tensor.tobytes() == data, 'after the work before it')
            room = bytearray(len(data))
            expect(file.pread(room, len(data)) == len(data) and bytes(room) == data, 'the write saw the read')
            expect(file.pread(bytearray(), stream=stream).result() == 0, 'nothing to do')
            expect_error(errno.EINVAL, 'is not a stream', file.pread, tensor, stream=object())
        expect_error(errno.EBADF, 'closed', stream.synchronize)


@test
def modes_are_those_of_open():
    with folder() as path:
        expect_error(errno.ENOENT, 'No such file', strait.File, f'{path}/f')
        expect_error(errno.EINVAL, "mode 'q'", strait.File, f'{path}/f', 'q')
        with strait.File(f'{path}/f', 'xb') as file:
            file.pwrite(b'abc')
        expect_error(errno.EEXIST, '', strait.File, f'{path}/f', 'x')
        with strait.File(f'{path}/f', 'r+b', buffered=True) as file:
            file.pwrite(b'X', 1)
        with strait.File(f'{path}/f', immutable=True) as file:
            room = bytearray(3)
            expect(file.pread(room) == 3 and bytes(room) == b'aXc' and 'f' in repr(file), room)
            expect_error(errno.EINVAL, 'negative', file.pread, room, -1)
            expect_error(errno.EINVAL, 'do not fit', file.pread, room, size=4)
        with strait.File(f'{path}/f', 'w') as file:
            expect(file.size == 0, 'truncated')


main()
