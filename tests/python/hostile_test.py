#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that are damaged, or made to do damage: refused with EBADMSG and a sentence, and nothing is allocated. TAP."""
import errno
import json
import os
import random
import signal
import struct

from common import expect, expect_error, folder, free_memory, main, raw, sample, strait, test, write


def entry(begin, end, code='U8', shape=None):
    return {'dtype': code, 'shape': [end - begin] if shape is None else shape, 'data_offsets': [begin, end]}


# What a file has, and a part of what is said about it.
FILES = {
    'nothing': (b'', 'too short'),
    'seven bytes': (b'1234567', 'too short'),
    'no header': (struct.pack('<Q', 0), 'header length'),
    'a header of a byte': (raw(b'{'), 'header length'),
    'a header past the end': (raw({}, length=1000), 'header length'),
    'a header of half the address space': (raw({}, length=1 << 63), 'header length'),
    'a header of all ones': (b'\xff' * 100, 'header length'),
    'a header over the limit': (struct.pack('<Q', 100_000_001) + b'{}', 'header length'),
    'no JSON': (raw(b'nope'), 'not JSON'),
    'JSON that ends early': (raw(b'{"a": {"dtype": "U8",'), 'not JSON'),
    'JSON with more behind it': (raw(b'{} {}'), 'not JSON'),
    'a list': (raw(b'[1, 2]'), 'not JSON'),
    'UTF-16': (raw('{}'.encode('utf-16')), 'not JSON'),
    'bytes that are no text': (raw(b'{"\xff\xfe": 1}'), 'not JSON'),
    'nested deeply': (raw(b'{"a":' + b'[' * 100_000 + b']' * 100_000 + b'}'), 'not JSON'),
    'a number of many digits': (raw(b'{"a": {"dtype": "U8", "shape": [' + b'9' * 5000 + b'], "data_offsets": [0, 1]}}', b'x'), ''),
    'a tensor that is a number': (raw({'a': 3}), "'a' lacks"),
    'a tensor that is null': (raw({'a': None}), "'a' lacks"),
    'a tensor without a type': (raw({'a': {'shape': [1], 'data_offsets': [0, 1]}}, b'x'), "'a' lacks"),
    'a tensor without a shape': (raw({'a': {'dtype': 'U8', 'data_offsets': [0, 1]}}, b'x'), "'a' lacks"),
    'three offsets': (raw({'a': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0, 1, 1]}}, b'x'), "'a' lacks"),
    'one offset': (raw({'a': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0]}}, b'x'), "'a' lacks"),
    'an unknown type': (raw({'a': entry(0, 1, 'F128')}, b'x'), 'unknown type'),
    'a type that is a list': (raw({'a': entry(0, 1, [])}, b'x'), 'unknown type'),
    'a shape that is a number': (raw({'a': entry(0, 1, shape=1)}, b'x'), 'whole numbers'),
    'a shape of text': (raw({'a': entry(0, 1, shape=['1'])}, b'x'), 'whole numbers'),
    'a shape of truth': (raw({'a': entry(0, 1, shape=[True])}, b'x'), 'whole numbers'),
    'a shape below zero': (raw({'a': entry(0, 4, shape=[-2, -2])}, b'xxxx'), 'whole numbers'),
    'a shape with a fraction': (raw({'a': entry(0, 1, shape=[1.0])}, b'x'), 'not JSON'),
    'a shape of infinity': (raw(b'{"a": {"dtype": "U8", "shape": [Infinity], "data_offsets": [0, 1]}}', b'x'), 'not JSON'),
    'a shape that overflows': (raw({'a': entry(0, 8, 'F32', [1 << 32, 1 << 32])}, b'x' * 8), 'overflows'),
    'a shape that overflows far': (raw({'a': entry(0, 8, 'F32', [1 << 62, 1 << 62])}, b'x' * 8), 'overflows'),
    'a dimension past all memory': (raw({'a': entry(0, 0, 'F32', [1 << 64, 0])}), 'whole numbers'),
    'offsets of text': (raw({'a': {'dtype': 'U8', 'shape': [1], 'data_offsets': ['0', '1']}}, b'x'), 'whole numbers'),
    'offsets below zero': (raw({'a': entry(-1, 0)}, b'x'), 'starts before'),
    'offsets that end first': (raw({'a': {'dtype': 'U8', 'shape': [1], 'data_offsets': [1, 0]}}, b'x'), 'truncated'),
    'a type that needs more bytes': (raw({'a': entry(0, 4, 'F32', [2])}, b'xxxx'), 'require 8'),
    'half a byte': (raw({'a': entry(0, 1, 'F4', [1])}, b'x'), 'require 0.5'),
    'a tensor past the end': (raw({'a': entry(0, 16)}, b'x' * 15), 'truncated'),
    'overlapping tensors': (raw({'a': entry(0, 4), 'b': entry(3, 7)}, b'x' * 7), 'overlap'),
    'the same bytes twice': (raw({'a': entry(0, 4), 'b': entry(0, 4)}, b'x' * 4), 'overlap'),
    'a gap': (raw({'a': entry(0, 4), 'b': entry(5, 7)}, b'x' * 7), 'belong to no tensor'),
    'a gap before the first': (raw({'a': entry(1, 4)}, b'x' * 4), 'belong to no tensor'),
    'bytes left over': (raw({'a': entry(0, 4)}, b'x' * 5), 'at the end belong'),
    'a name twice': (raw(b'{"a": {"dtype":"U8","shape":[2],"data_offsets":[0,2]}, "a": {"dtype":"U8","shape":[2],"data_offsets":[2,4]}}', b'xxxx'), 'belong to no tensor'),
    'metadata of numbers': (raw({'__metadata__': {'a': 1}}), '__metadata__'),
    'metadata that is a list': (raw({'__metadata__': []}), '__metadata__'),
}


@test
def each_is_refused_with_its_reason():
    before = free_memory()
    with folder() as path:
        for name, (data, text) in FILES.items():
            file = f'{path}/file'
            with open(file, 'wb') as bad:
                bad.write(data)
            for device in ('host', 'emu:0'):
                try:
                    error = expect_error(errno.EBADMSG, text, strait.load_file, file, device, framework='strait')
                except AssertionError as problem:
                    raise AssertionError(f'{name}: {problem}') from problem
                expect(error.filename == file, name)
            expect_error(errno.EBADMSG, text, strait.safe_open, file, 'strait', 'host')
    expect(free_memory() == before, 'nothing is left allocated')


@test
def the_smallest_files_are_accepted():
    with folder() as path:
        for name, data in (('none', raw({})), ('metadata', raw({'__metadata__': {}})), ('blanks', raw(b'{}      ')),
                           ('empty', raw({'a': entry(0, 0)})), ('nothing of much', raw({'a': entry(0, 0, 'F32', [1 << 40, 0])}))):
            with open(f'{path}/{name}', 'wb') as file:
                file.write(data)
            got = strait.load_file(f'{path}/{name}', 'emu:0', framework='strait')
            expect(all(t.tobytes() == b'' for t in got.values()), name)


@test
def damaged_bytes_raise_nothing_else():
    """Bytes of the header changed at random: the file is loaded or refused, and nothing else happens."""
    rng = random.Random(20)
    with folder() as path:
        file = write(f'{path}/m', {k: (c, s, d) for k, (c, s, d) in sample(4).items()})
        with open(file, 'rb') as good:
            data = bytearray(good.read())
        header = 8 + int.from_bytes(data[:8], 'little')
        loaded = refused = 0
        for _ in range(3000):
            bad = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                bad[rng.randrange(header)] = rng.choice(b'0123456789{}[]",:eE-+.x\x00\xff')
            with open(file, 'wb') as out:
                out.write(bad)
            try:
                got = strait.load_file(file, 'host', framework='strait')
                expect(sum(t.nbytes for t in got.values()) == len(data) - header, 'all bytes, once')
                loaded += 1
            except strait.StraitError as error:
                expect(error.errno == errno.EBADMSG, error)
                refused += 1
        expect(loaded > 100 and refused > 1000, (loaded, refused))


@test
def things_that_are_no_files():
    with folder() as path:
        os.mkfifo(f'{path}/pipe')
        expect_error(errno.EISDIR, '', strait.load_file, path, 'host', framework='strait')
        signal.alarm(60)  # an open of a pipe may wait for ever
        for name in (f'{path}/pipe', '/dev/null'):
            expect_error(errno.EBADMSG, 'not a regular file', strait.load_file, name, 'host', framework='strait')
            expect_error(errno.EBADMSG, 'not a regular file', strait.safe_open, name, 'strait', 'host')
        os.mkfifo(f'{path}/model.safetensors.index.json')
        expect_error(errno.EBADMSG, 'not a regular file', strait.load_sharded, path, 'host', framework='strait')
        os.unlink(f'{path}/model.safetensors.index.json')
        with open(f'{path}/index.json', 'w') as file:
            json.dump({'weight_map': {'a': 'pipe'}}, file)
        expect_error(errno.EBADMSG, 'not a regular file', strait.load_sharded, f'{path}/index.json', 'host', framework='strait')
        signal.alarm(0)
        with open(f'{path}/index.json', 'w') as file:
            json.dump({'weight_map': {'a': 'pipe/../../x'}}, file)
        expect_error(errno.EBADMSG, 'outside', strait.load_sharded, f'{path}/index.json', 'host', framework='strait')


main()
