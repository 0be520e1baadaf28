#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples of device code on frames. TAP. $STRAIT_BUILD is the build directory."""
import collections
import os
import re
import subprocess
import sys
import tempfile
import traceback

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get('STRAIT_BUILD') or os.environ.get('BUILD') or os.path.join(SOURCE, 'build'))
DEVICES = ('emu:0', 'host')
# Components of the graph of GAP's generator, by scale; counted by a program that has no frames.
COMPONENTS = {14: 3837, 16: 18835}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(name, *args):
    done = subprocess.run([os.path.join(BUILD, 'examples', 'example-' + name), *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, f'{name} {args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}'
    return done.stdout


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, text
    return int(found.group(1))


@test
def atomic_anon(folder):
    for device in DEVICES:
        out = run('atomic_anon', '--device', device)
        assert out == '512 threads added 512000, and each to its own 512000\n', out


@test
def file_histogram(folder):
    path, data = os.path.join(folder, 'file'), os.urandom(3 * 2**20 + 777) + bytes(2**20)
    with open(path, 'wb') as file:
        file.write(data)
    want = collections.Counter(data)
    for device in DEVICES:
        out = run('file_histogram', '--device', device, '--budget', '1', path)
        assert {int(b, 16): int(n) for b, n in re.findall(r'^([0-9a-f]{2}) (\d+)$', out, re.M)} == want
        assert number(r'(\d+) frames evicted', out) > 0, out
        # A kernel that reads makes nothing dirty.
        assert number(r'(\d+) granules written', out) == 0, out


@test
def random_update(folder):
    for device in DEVICES:
        out = run('random_update', '--device', device, '--log2', '18', '--updates', '100000', os.path.join(folder, 'table'))
        assert number(r': (\d+) differ after them', out) > 40000, out
        assert number(r'(\d+) after all of them again', out) == 0, out


@test
def graph(folder):
    path = os.path.join(folder, 'graph')
    for scale, components in COMPONENTS.items():
        run('graph', 'make', '--scale', str(scale), path)
        for device in DEVICES:
            out = run('graph', 'cc', '--device', device, '--budget', '1', path)
            assert number(r'^(\d+) components', out) == components, out
            assert number(r'(\d+) frames evicted', out) > 0, out
            out = run('graph', 'bfs', '--device', device, '--budget', '1', path)
            assert 2**scale / 2 < number(r'^(\d+) vertices reached', out) <= 2**scale - components + 1, out


def main():
    print(f'1..{len(TESTS)}')
    failed = 0
    for n, function in enumerate(TESTS, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(folder)
                print(f'ok {n} - {function.__name__}')
            except Exception:
                failed += 1
                print(f'not ok {n} - {function.__name__}')
                print(''.join(f'# {line}\n' for line in traceback.format_exc().splitlines()), end='')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
