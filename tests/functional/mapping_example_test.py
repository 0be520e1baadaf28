#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples and the measurement of coherent mappings, on each kind of device. TAP. $STRAIT_BUILD is the build directory."""
import os
import re
import subprocess
import sys
import tempfile
import traceback

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get('STRAIT_BUILD') or os.environ.get('BUILD') or os.path.join(SOURCE, 'build'))
FAKE = os.path.join(BUILD, 'tests', 'fakecuda')
DEVICES = ('emu:0', 'host', 'cuda:0')
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(*args):
    """Run a program of the build; the GPU is the fake one."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=300, env=dict(os.environ, LD_LIBRARY_PATH=FAKE))
    assert done.returncode == 0 and not done.stderr, f'{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}'
    return done.stdout


@test
def shared_table(folder):
    """The program checks the table; this, that few bytes moved."""
    for device in DEVICES:
        out = run(os.path.join(BUILD, 'examples', 'example-shared_table'), '--device', device, '--turns', '6',
                  os.path.join(folder, 'table'))
        to_device, back = map(float, re.search(r'8\.0 MiB: ([\d.]+) MiB to the device, ([\d.]+) MiB back', out).groups())
        # All of it once, and then a granule of 4 KiB for each row that the other side updated.
        assert to_device <= 8 + 6 * 1049 * 4 / 1024, out
        assert 0 < back <= 6 * 701 * 4 / 1024, out


@test
def edit_in_place(folder):
    path = os.path.join(folder, 'file')
    data = os.urandom(5 * 2**20 + 77)
    for device in DEVICES:
        with open(path, 'wb') as file:
            file.write(data)
        for want in (bytes(255 - b for b in data), data):
            out = run(os.path.join(BUILD, 'examples', 'example-edit_in_place'), '--device', device, '--budget', '2',
                      '--window', '1', path)
            assert float(re.search(r'through ([\d.]+) MiB', out).group(1)) <= 2, out
            with open(path, 'rb') as file:
                assert file.read() == want, device


@test
def measurement(folder):
    out = run(os.path.join(SOURCE, 'bench', 'gpu', 'mapping'), 'emu:0', '64', folder)
    rows = re.findall(r'(CPU|device) changes (a word per page|whole pages).* ([\d.]+) %', out)
    assert len(rows) == 4, out
    for _, what, moved in rows:
        assert float(moved) <= (0.08 if 'word' in what else 1.2) * 1.1, out


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
