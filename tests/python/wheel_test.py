#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The wheel: what it needs of a system, and whether it works in a bare environment. TAP."""
import base64
import csv
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from common import SOURCE, Skip, expect, main, test

SYSTEM = {'libc.so.6', 'libdl.so.2', 'libpthread.so.0', 'librt.so.1', 'libm.so.6', 'ld-linux-x86-64.so.2', 'libstrait.so.0'}
WORK = tempfile.TemporaryDirectory(prefix='strait-wheel.')
state = {}


def output(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    expect(done.returncode == 0, f'{command}: {done.returncode}: {done.stdout.decode(errors="replace")}')
    return done.stdout.decode(errors='replace')


def wheel():
    """The path of the wheel, built once."""
    if 'wheel' not in state:
        done = subprocess.run([f'{SOURCE}/packaging/wheel/build', f'{WORK.name}/dist'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 77:
            raise Skip(done.stdout.decode(errors='replace').strip().splitlines()[-1])
        expect(done.returncode == 0, done.stdout.decode(errors='replace'))
        state['wheel'] = glob.glob(f'{WORK.name}/dist/*.whl')[0]
        with zipfile.ZipFile(state['wheel']) as archive:
            archive.extractall(f'{WORK.name}/files')
    return state['wheel']


def programs():
    wheel()
    for path in glob.glob(f'{WORK.name}/files/**', recursive=True):
        if os.path.isfile(path):
            with open(path, 'rb') as file:
                if file.read(4) == b'\x7fELF':
                    yield path


@test
def it_is_built():
    name = os.path.basename(wheel())
    expect(re.fullmatch(r'strait_io-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl', name), name)
    first = open(wheel(), 'rb').read()
    output(f'{SOURCE}/packaging/wheel/build', f'{WORK.name}/again')
    expect(open(glob.glob(f'{WORK.name}/again/*.whl')[0], 'rb').read() == first, 'the same tree gives the same bytes')


@test
def no_newer_symbol_is_asked_for():
    limit = tuple(int(n) for n in re.search(r'manylinux_(\d+)_(\d+)', wheel()).groups())
    found = list(programs())
    expect(len(found) == 4, found)
    for path in found:
        text = output('objdump', '-p', path)
        newer = [v for v in re.findall(r'\bGLIBC_([0-9.]+)', text) if tuple(int(n) for n in v.split('.'))[:2] > limit]
        expect(not newer and 'GLIBC_PRIVATE' not in text, f'{path}: {newer}')


@test
def it_needs_libc_alone():
    for path in programs():
        needed = set(re.findall(r'NEEDED +(\S+)', output('objdump', '-p', path)))
        expect(needed <= SYSTEM, f'{path}: {needed - SYSTEM}')


@test
def liburing_is_inside_and_hidden():
    symbols = output('objdump', '-T', f'{WORK.name}/files/strait/_bundle/lib/libstrait.so.0') if wheel() else ''
    expect('uring' not in symbols and 'strait_read' in symbols, [line for line in symbols.splitlines() if 'uring' in line])


@test
def its_record_is_right():
    with zipfile.ZipFile(wheel()) as archive:
        record = next(name for name in archive.namelist() if name.endswith('/RECORD'))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        expect({row[0] for row in rows} == set(archive.namelist()), 'all files are listed')
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                want = 'sha256=' + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
                expect(digest == want and int(size) == len(data), name)
        expect(any(name == 'strait/py.typed' for name in archive.namelist()), 'it is typed')


def environment():
    """A bare virtual environment with the wheel in it."""
    if 'venv' not in state:
        path = f'{WORK.name}/venv'
        done = subprocess.run([sys.executable, '-m', 'venv', path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Skip('python3 -m venv does not work here: package python3-venv')
        output(f'{path}/bin/pip', 'install', '--no-index', '--quiet', wheel())
        state['venv'] = path
    return state['venv'], {'PATH': f'{state["venv"]}/bin:/usr/bin:/bin', 'HOME': WORK.name}


USE = '''
import struct, sys, strait
data = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(data)) + data + b'1234')
print(strait.load_file(sys.argv[1], 'emu:0', framework='strait')['a'].tobytes(), [m for m in ('torch', 'numpy') if m in sys.modules])
'''


@test
def it_works_in_a_bare_environment():
    path, env = environment()
    text = output(f'{path}/bin/python', '-c', USE, f'{WORK.name}/m', env=env, cwd=WORK.name)
    expect(text == "b'1234' []\n", text)
    expect('emu:0' in output(f'{path}/bin/strait', 'info', env=env, cwd=WORK.name), 'the command')
    expect('emu:0' in output(f'{path}/bin/python', '-m', 'strait', 'info', env=env, cwd=WORK.name), 'the module')
    text = output(f'{path}/bin/strait', 'run', '--quiet', '--', 'python', '-c',
                  'import ctypes; print(ctypes.CDLL("libcufile.so.0").cuFileUseCount())', env=env, cwd=WORK.name)
    expect(text == '0\n', text)


@test
def programs_are_patched_when_asked_for():
    """By strait run, and by the .pth file where STRAIT_PATCH is set, for python -I, too."""
    path, env = environment()
    ask = 'import sys; print("strait.patch" in sys.modules, "torch" in sys.modules)'
    for command, more, want in (((), {}, 'False'), (('-I',), {}, 'False'), ((), {'STRAIT_PATCH': '1'}, 'True'),
                                (('-I',), {'STRAIT_PATCH': '1'}, 'True'), (('-I',), {'STRAIT_PATCH': '0'}, 'False')):
        text = output(f'{path}/bin/python', *command, '-c', ask, env={**env, **more}, cwd=WORK.name)
        expect(text == f'{want} False\n', f'{command} {more}: {text}')
    for option, want in ((('--quiet',), 'True'), (('--quiet', '--no-python'), 'False')):
        text = output(f'{path}/bin/strait', 'run', *option, '--', 'python', '-c', ask, env=env, cwd=WORK.name)
        expect(text == f'{want} False\n', f'{option}: {text}')


@test
def vllm_finds_its_plugin():
    path, env = environment()
    ask = ('from importlib.metadata import distribution; '
           'print([(e.name, e.value, e.load().__name__) for e in distribution("strait-io").entry_points if e.group == "vllm.general_plugins"])')
    text = output(f'{path}/bin/python', '-c', ask, env=env, cwd=WORK.name)
    expect(text == "[('strait', 'strait.vllm:register', 'register')]\n", text)


@test
def it_works_beside_pytorch():
    """The system's PyTorch, seen from the bare environment."""
    path, env = environment()
    done = subprocess.run([f'{path}/bin/python', '-c', 'import sys; sys.path.append("/usr/lib/python3/dist-packages"); import torch'],
                          env=env, capture_output=True)
    if done.returncode:
        raise Skip('PyTorch is not installed: package python3-torch')
    use = 'import sys; sys.path.append("/usr/lib/python3/dist-packages")\n' + USE.replace(
        "framework='strait')['a'].tobytes()", "framework='pt')['a'].tolist()").replace("'numpy'", "'cupy'")
    text = output(f'{path}/bin/python', '-c', use, f'{WORK.name}/m', env=env, cwd=WORK.name)
    expect(text == "[49, 50, 51, 52] ['torch']\n", text)


@test
def it_is_removed_without_a_trace():
    path, env = environment()
    output(f'{path}/bin/pip', 'uninstall', '--yes', '--quiet', 'strait-io')
    left = [name for name in glob.glob(f'{path}/lib/python3*/site-packages/*') + glob.glob(f'{path}/bin/*') if 'strait' in os.path.basename(name)]
    expect(not left, left)
    shutil.rmtree(path)


main()
