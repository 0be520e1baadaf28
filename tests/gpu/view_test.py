#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GPU threads that read storage themselves: bench/gpu/view verifies it, and the examples in CUDA. TAP. $STRAIT_BUILD is the build
directory. Compiled by nvcc, and skipped without it or without a GPU."""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get('STRAIT_BUILD') or os.environ.get('BUILD') or os.path.join(SOURCE, 'build'))
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def nvcc():
    return shutil.which('nvcc') or shutil.which('nvcc', path='/usr/local/cuda/bin')


def missing():
    """Why nothing can be run here; None: it can."""
    strait = os.path.join(BUILD, 'strait')
    done = subprocess.run([strait, 'info', '--json'], capture_output=True, text=True, timeout=60)
    if '"cuda:0"' not in done.stdout:
        return 'there is no GPU'
    return None if nvcc() else 'needs nvcc'


def run(*args, **env):
    done = subprocess.run(args, capture_output=True, text=True, timeout=300, env={**os.environ, 'LD_LIBRARY_PATH': BUILD, 'BUILD': BUILD, **env})
    assert done.returncode == 0, f'{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}'
    return done.stdout


def example(folder, name):
    out = os.path.join(folder, name)
    run(nvcc(), '-std=c++17', '-arch=native', '-I', os.path.join(SOURCE, 'include'), '-o', out, os.path.join(SOURCE, 'examples', name + '.cu'), '-L', BUILD,
        '-lstrait')
    return out


@test
def verified(folder):
    """Every byte, stores, atomic operations, few frames, divergent code, errors."""
    out = run(os.path.join(SOURCE, 'bench/gpu/view'), 'verify', FOLDER=folder)
    assert 'WRONG' not in out and len(re.findall(r' ok$', out, re.M)) > 15, out


@test
def atomic_anon(folder):
    out = run(example(folder, 'atomic_anon'))
    assert out == '512 threads added 512000, and each to its own 512000\n', out


@test
def file_histogram(folder):
    path, data = os.path.join(folder, 'file'), os.urandom(3 * 2**20 + 777) + bytes(2**20)
    with open(path, 'wb') as file:
        file.write(data)
    out = run(example(folder, 'file_histogram'), path, '1')
    assert {int(b, 16): int(n) for b, n in re.findall(r'^([0-9a-f]{2}) (\d+)$', out, re.M)} == collections.Counter(data), out
    assert int(re.search(r'(\d+) frames evicted', out).group(1)) > 0, out


def main():
    why = missing()
    if why:
        print(f'1..0 # SKIP {why}')
        return 0
    print(f'1..{len(TESTS)}')
    failed = 0
    for n, function in enumerate(TESTS, 1):
        with tempfile.TemporaryDirectory(dir='/var/tmp') as folder:
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
