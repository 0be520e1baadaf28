#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Coherent mappings from Python: NumPy views of the CPU's side, tensors of a device's. TAP."""
import errno
import gc
import os
import random

from common import expect, expect_error, folder, free_memory, main, needs_numpy, np, strait, test

LENGTH = 1 << 20
OPTIONS = ({}, {'compare': True}, {'copy': True}, {'copy': True, 'compare': True}, {'copy': True, 'copy_budget': 1 << 17})


def table(path, length=LENGTH):
    data = os.urandom(length)
    with open(f'{path}/table', 'wb') as file:
        file.write(data)
    return f'{path}/table', bytearray(data)


def content(path):
    with open(path, 'rb') as file:
        return file.read()


@needs_numpy
def the_cpu_and_devices_take_turns():
    for options in OPTIONS:
        with folder() as path:
            name, want = table(path)
            rng = random.Random(5)
            with strait.Mapping(name, **options) as m:
                expect(len(m) == LENGTH, 'the length')
                for turn in range(60):
                    device = rng.choice((None, 'cpu', 'emu:0', 'host'))
                    start = rng.randrange(LENGTH // 4 - 1) * 4
                    length = rng.randrange(1, min(5000, (LENGTH - start) // 4) + 1) * 4
                    with m.acquire(device, start, length, 'write', 'int32') as data:
                        array = np.asarray(data)
                        expect(array.dtype == np.int32 and array.tobytes() == want[start:start + length], (options, turn, device))
                        array[::3] = turn
                        want[start:start + length] = array.tobytes()
                    del array
                m.sync()
                expect(content(name) == want, options)
                info = m.info()
                expect(info['conflicts'] == 0 and info['acquired'] == 0 and info['error'] == 0, info)


@needs_numpy
def says_what_it_is():
    with folder() as path:
        name, _ = table(path)
        with strait.Mapping(name) as m:
            expect(m.info()['backing'] == 'shared', m.info())
        with strait.Mapping(name, compare=True) as m:
            expect(m.info()['tracking'] == 'compare', m.info())
        with strait.Mapping(name, copy=True, compare=True) as m:
            expect(m.info()['backing'] == 'copy', m.info())
        with strait.Mapping(name, read_only=True) as m:
            expect(m.info()['tracking'] == 'none', m.info())
            expect_error(errno.EACCES, 'acquire', m.acquire, 'emu:0', intent='write')


@needs_numpy
def only_changes_move():
    with folder() as path:
        name, want = table(path)
        with strait.Mapping(name) as m:
            with m.acquire('emu:0') as data:
                expect(np.from_dlpack(data).tobytes() == want, 'all of it')
            before = m.info()['to_device_bytes']
            with m.acquire(None, 8192, 4096, 'write') as data:
                data[5] ^= 1
            with m.acquire('emu:0') as data:
                expect(np.from_dlpack(data)[8192 + 5] == want[8192 + 5] ^ 1, 'the change')
            expect(m.info()['to_device_bytes'] - before == 4096, m.info())


@needs_numpy
def shapes_and_types():
    with folder() as path:
        name, want = table(path)
        with strait.Mapping(name) as m:
            with m.acquire(length=4096, dtype=np.dtype('float32'), shape=(32, 32)) as data:
                expect(data.shape == (32, 32) and data.dtype == np.float32 and not data.flags.writeable, 'the array')
            with m.acquire('emu:0', length=4096, dtype='BF16', shape=(2, 1024)) as data:
                expect(data.dtype == 'BF16' and data.shape == (2, 1024) and data.tobytes() == want[:4096], data)
            with m.acquire('host', 100, 8, 'write', 'uint64') as data:
                np.asarray(data)[0] = 77
            with m.acquire(None, 100, 8, dtype='uint64') as data:
                expect(data[0] == 77, data)
            expect_error(errno.EINVAL, 'no array', m.acquire, length=10, dtype='float32')
            expect_error(errno.EINVAL, 'no array', m.acquire, length=16, dtype='float32', shape=(5,))
            expect_error(errno.EINVAL, 'intent', m.acquire, intent='both')
            expect_error(errno.EINVAL, 'type', m.acquire, dtype='nothing')
            expect_error(errno.EINVAL, 'type', m.acquire, dtype='F4')
            expect_error(errno.EINVAL, 'NumPy', m.acquire, length=8, dtype='BF16')
            expect_error(errno.EINVAL, 'acquire', m.acquire, 'emu:0', LENGTH, 4)
            expect_error(errno.EINVAL, 'range', m.acquire, 'emu:0', -4, 4)
            expect_error(errno.ENODEV, 'nothing:0', m.acquire, 'nothing:0')
            expect(m.info()['acquired'] == 0, m.info())


@needs_numpy
def arrays_keep_the_memory():
    with folder() as path:
        name, want = table(path)
        for options in OPTIONS[:3]:
            m = strait.Mapping(name, **options)
            part = m.acquire(intent='read')
            array = part.data
            expect(array[7] == want[7], 'the byte')
            part.release()
            m.close()
            del m, part
            gc.collect()
            expect(array[7] == want[7], 'the memory is still there')
            del array


@needs_numpy
def tensors_keep_the_memory():
    with folder() as path:
        name, want = table(path)
        before = free_memory()
        m = strait.Mapping(name)
        part = m.acquire('emu:0')
        array = np.from_dlpack(part.data)
        part.release()
        m.close()
        del m, part
        gc.collect()
        expect(array.tobytes() == want, 'the memory is still there')
        del array
        expect(free_memory() == before, 'all of it is freed')


@needs_numpy
def hints_and_eviction():
    with folder() as path:
        name, want = table(path)
        with strait.Mapping(name, device_budget=1 << 18, copy=True) as m:
            m.advise('sequential')
            for start in range(0, LENGTH, 1 << 16):
                with m.acquire('emu:0', start, 1 << 16, 'write') as data:
                    expect(np.asarray(data).tobytes() == want[start:start + (1 << 16)], start)
            m.prefetch('emu:0', 0, 4096)
            m.prefetch(None, 0, 4096)
            with m.acquire('emu:0', 0, 4096):
                expect_error(errno.EBUSY, 'evict', m.evict, 'emu:0')
            m.evict('emu:0')
            expect(m.info()['device_bytes'] == 0, m.info())
            with m.acquire(None, 0, 4096):
                expect_error(errno.EBUSY, 'evict', m.evict)
            m.evict()
            expect(m.info()['copy_bytes'] == 0, m.info())
            expect_error(errno.EINVAL, 'advice', m.advise, 'sometimes')


@needs_numpy
def changes_of_other_processes():
    with folder() as path:
        name, want = table(path)
        with strait.Mapping(name) as m:
            with m.acquire('emu:0'):
                pass
            with open(name, 'r+b') as file:
                file.write(b'changed')
            m.refresh()
            with m.acquire('emu:0', 0, 7) as data:
                expect(data.tobytes() == b'changed', data.tobytes())


@needs_numpy
def memory_without_a_file():
    with strait.Mapping(None, 0, 65536) as m:
        with m.acquire(intent='overwrite', dtype='int64') as data:
            data[:] = np.arange(8192)
        with m.acquire('emu:0', intent='write', dtype='int64') as data:
            array = np.asarray(data)
            array += 1
        with m.acquire(dtype='int64') as data:
            expect((data == np.arange(1, 8193)).all(), data)


@needs_numpy
def calls_on_a_stream():
    with folder() as path:
        name, want = table(path)
        fresh = os.urandom(LENGTH)
        with open(f'{path}/fresh', 'wb') as file:
            file.write(fresh)
        with strait.Mapping(name) as m, strait.Stream('emu:0') as stream, strait.File(f'{path}/fresh') as source:
            # All of it is queued before any of it is waited for.
            first = m.acquire('emu:0', 0, 65536, 'overwrite', stream=stream)
            source.pread(first.data, stream=stream)
            first.release()
            second = m.acquire('emu:0', 65536, 65536, 'write', stream=stream)
            first.wait()
            stream.synchronize()
            np.asarray(second.data)[100] ^= 255
            second.release()
            second.wait()
            want[:65536] = fresh[:65536]
            want[65536 + 100] ^= 255
            with m.acquire() as data:
                expect(data.tobytes() == want, 'the changes')
            expect(m.info()['declared'] == 16, m.info())
            with m.acquire('emu:0', stream=stream) as data:
                stream.synchronize()
                expect(data.tobytes() == want, 'all of it')
            stream.synchronize()
            # The default stream, as the number of the application's stream.
            part = m.acquire('emu:0', 4096, 4096, stream=0)
            part.wait()
            expect(part.data.tobytes() == want[4096:8192], 'a part')
            part.release()
            part.wait()
            expect(m.info()['acquired'] == 0, m.info())


@needs_numpy
def the_mapping_outlives_its_calls_on_a_stream():
    with folder() as path:
        name, want = table(path)
        stream = strait.Stream('emu:0')
        for _ in range(20):
            m = strait.Mapping(name)
            with m.acquire('emu:0', 0, 4096, 'write', stream=stream):
                pass
            del m
        gc.collect()
        stream.close()
        expect(content(name) == want, 'nothing changed')


@needs_numpy
def errors_on_a_stream():
    with folder() as path:
        name, _ = table(path)
        stream = strait.Stream('emu:0')
        with strait.Mapping(name) as m:
            expect_error(errno.EINVAL, 'name a device', m.acquire, stream=stream)
            expect_error(errno.EINVAL, 'emu:0, not of host', m.acquire, 'host', stream=stream)
            expect_error(errno.EINVAL, 'not a stream', m.acquire, 'emu:0', stream=object())
            expect_error(errno.EINVAL, 'acquire', m.acquire, 'emu:0', LENGTH, 4, stream=stream)
            os.truncate(name, 4096)
            part = m.acquire('emu:0', 8192, 4096, stream=stream)
            expect_error(errno.EFAULT, 'acquire', part.wait)
            part.release()
            expect_error(errno.EFAULT, 'release', part.wait)
            part = m.acquire('emu:0', 0, 4096, stream=stream)
            stream.close()
            expect_error(errno.EBADF, 'closed', part.release)
            expect_error(errno.EBADF, 'closed', m.acquire, 'emu:0', 0, 4096, stream=stream)


@test
def errors():
    with folder() as path:
        expect_error(errno.ENOENT, 'open', strait.Mapping, f'{path}/nothing')
        name, _ = table(path)
        expect_error(errno.EINVAL, 'map', strait.Mapping, name, 1)
        expect_error(errno.EINVAL, 'map', strait.Mapping, None)
        m = strait.Mapping(name)
        m.close()
        m.close()
        expect_error(errno.EBADF, 'closed', m.acquire)
        expect_error(errno.EBADF, 'closed', m.sync)


if __name__ == '__main__':
    main()
