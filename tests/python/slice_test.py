#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""get_slice() against NumPy's indexing, and how many bytes it reads. TAP."""
import errno
import random

from common import expect, expect_error, folder, main, needs_numpy, np, strait, test, write
from strait import _slice


def tensor(shape, dtype='<f4'):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


CODES = {'<f4': 'F32', '<u1': 'U8', '<f8': 'F64', '<i2': 'I16'}


def stored(path, array, dtype='<f4'):
    return write(path, {'before': ('U8', [13], bytes(13)), 'x': (CODES[dtype], list(array.shape), array.tobytes()),
                        'after': ('U8', [3], b'end')})


def random_index(rng, shape):
    parts = []
    for size in shape[:rng.randint(0, len(shape))]:
        kind = rng.randrange(6)
        if kind == 0 and size:
            parts.append(rng.randrange(-size, size))
        elif kind == 1:
            parts.append(slice(None))
        elif kind == 2:
            parts.append(slice(rng.randint(-size - 2, size + 2), rng.randint(-size - 2, size + 2), rng.randint(1, 3)))
        else:
            parts.append(slice(rng.randint(-size - 2, size + 2), rng.randint(-size - 2, size + 2)))
    if rng.randrange(3) == 0:
        parts.insert(rng.randint(0, len(parts)), Ellipsis)
    if rng.randrange(4) == 0:
        parts.insert(rng.randint(0, len(parts)), None)
    return tuple(parts) if len(parts) != 1 or rng.randrange(2) else parts[0]


def compare(part, array, index):
    """The same result, or the same error."""
    try:
        want = np.asarray(array[index])
    except IndexError:
        try:
            part[index]
        except IndexError:
            return
        raise AssertionError(f'{index} is accepted') from None
    same(part[index], want, index)


def same(got, want, index):
    expect(got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want), (index, got.shape, want.shape))


@needs_numpy
def any_index_gives_what_numpy_gives():
    rng = random.Random(7)
    with folder() as path:
        for shape, dtype in (((7,), '<f8'), ((5, 9), '<f4'), ((4, 3, 6), '<i2'), ((2, 3, 4, 5), '<u1'), ((3, 0, 2), '<f4'),
                             ((1, 1), '<f4'), ((), '<f4'), ((40, 50), '<f4')):
            array = tensor(shape, dtype)
            file = stored(f'{path}/m', array, dtype)
            for device in ('emu:0', 'host'):
                with strait.safe_open(file, 'numpy', device) as f:
                    part = f.get_slice('x')
                    expect(part.get_shape() == list(shape) and part.get_dtype() == CODES[dtype], 'what it is')
                    for _ in range(150):
                        index = random_index(rng, shape)
                        compare(part, array, index)


@needs_numpy
def pieces_and_cuts_give_the_same():
    """The same boxes with every choice of the threshold, and with blocks of a few rows."""
    rng = random.Random(8)
    piece, block, pitch = _slice.PIECE, _slice.BLOCK, _slice.PITCH
    with folder() as path:
        array = tensor((24, 16, 8))
        file = stored(f'{path}/m', array)
        try:
            with strait.safe_open(file, 'numpy', 'emu:0') as f:
                part = f.get_slice('x')
                for _ in range(400):
                    index = random_index(rng, array.shape)
                    _slice.PIECE, _slice.BLOCK = rng.choice((1, 64, 1 << 30)), rng.choice((1, 2000, 1 << 30))
                    _slice.PITCH = rng.choice((1, 100, 1 << 30))
                    compare(part, array, index)
        finally:
            _slice.PIECE, _slice.BLOCK, _slice.PITCH = piece, block, pitch


@needs_numpy
def only_what_is_needed_is_read():
    with folder() as path:
        array = tensor((64, 256, 64))  # a row of 64 KiB
        file = stored(f'{path}/m', array)
        stats = {}
        with strait.safe_open(file, 'numpy', 'emu:0', stats=stats) as f:
            part = f.get_slice('x')
            for index, count, transfers in ((np.s_[8:16], 8 << 16, 1), (np.s_[5], 1 << 16, 1), (np.s_[:, :128], 64 << 15, 64),
                                            (np.s_[::2], 63 << 16, 1), (np.s_[3:5, 1:2], 2 << 8, 1), (np.s_[3:50, 7:130], 47 * 123 << 8, 1), (np.s_[9, 10:20], 10 << 8, 1),
                                            (np.s_[:, :, 5], 4 << 20, 1), (np.s_[4:4], 0, 0), (np.s_[2, 3, 4:6], 8, 1)):
                stats.clear()
                same(part[index], array[index], index)
                expect(stats.get('bytes', 0) == count and stats.get('transfers', 0) == transfers, (index, stats))
        expect(_slice.PIECE == 32 << 10 and _slice.PITCH == 8 << 10 and _slice.BLOCK == 256 << 20, 'docs/python.md states it')


@needs_numpy
def other_indices_read_the_whole_tensor():
    with folder() as path:
        array = tensor((6, 5))
        with strait.safe_open(stored(f'{path}/m', array), 'numpy', 'host') as f:
            part = f.get_slice('x')
            for index in ([1, 3], np.array([0, 2]), array > 7, (np.array([1, 2]), slice(1, 3)), (Ellipsis, [0, 1]), True):
                same(part[index], array[index], index)


@needs_numpy
def indices_that_are_wrong_raise_what_numpy_raises():
    with folder() as path:
        array = tensor((6, 5))
        with strait.safe_open(stored(f'{path}/m', array), 'numpy', 'host') as f:
            part = f.get_slice('x')
            for index in (6, -7, (0, 5), (0, 0, 0), (Ellipsis, Ellipsis), (0, slice(None), 1)):
                try:
                    part[index]
                    raise AssertionError(f'{index} is accepted')
                except IndexError:
                    pass
            expect(len(part) == 6, 'its length')
        expect_error(errno.EBADF, 'closed', part.__getitem__, 0)
        expect_error(errno.ENOENT, "'y'", strait.safe_open(stored(f'{path}/m', array), 'numpy', 'host').get_slice, 'y')


@test
def tensors_of_straits_own_are_read_in_pieces():
    data = bytes(range(240))
    with folder() as path:
        with strait.safe_open(write(f'{path}/m', {'x': ('U8', [6, 40], data)}), 'strait', 'emu:0') as f:
            part = f.get_slice('x')
            expect(part[2:4].tobytes() == data[80:160], 'rows')
            expect(part[1:3, 5:7].tobytes() == data[45:47] + data[85:87], 'columns')
            expect_error(errno.EOPNOTSUPP, 'cannot be indexed', part.__getitem__, (slice(None), slice(None, None, 2)))


@test
def types_smaller_than_a_byte():
    data = bytes(range(64))
    with folder() as path:
        with strait.safe_open(write(f'{path}/m', {'x': ('F4', [8, 16], data)}), 'strait', 'host') as f:
            part = f.get_slice('x')
            expect(part[2:4].tobytes() == data[16:32] and part[2:4].shape == (2, 16), 'rows')
            expect_error(errno.EOPNOTSUPP, 'cannot be cut', part.__getitem__, (slice(None), slice(0, 3)))


main()
