#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`strait run`: a program that has another libcufile gets Strait's, however it asks for one. TAP."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath((sys.argv[1:] or [os.environ.get('STRAIT_BUILD') or os.path.join(SOURCE, 'build')])[0])
STRAIT = os.path.join(BUILD, 'strait')
HERE = os.path.join(BUILD, 'tests', 'cufile')
VENDOR = os.path.join(HERE, 'libcufile.so.0')
LINKED, LOADS = os.path.join(HERE, 'run-linked'), os.path.join(HERE, 'run-loads')
SLOW = max(1, int(os.environ.get('HARNESS_SLOW') or 1))
SIZE = 100000
OURS, THEIRS = f'version 1150, {SIZE} bytes\n', 'version 42, -1 bytes\n'
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(('LD_', 'CUFILE_', 'STRAIT_C'))}
    return dict({**env, 'KVIKIO_COMPAT_MODE': 'AUTO', 'CUFILE_ENV_PATH_JSON': '/nowhere'}, LD_LIBRARY_PATH=HERE, **more)


def run(*args, code=0, env=None, **options):
    done = subprocess.run([STRAIT, 'run', *args], capture_output=True, text=True, timeout=60 * SLOW,
                          stdin=subprocess.DEVNULL, env=env or environment(), **options)
    assert done.returncode == code, f'{args}: ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}'
    return done.stdout, done.stderr


def summary(text):
    return json.loads(text)


def summed(err, reads=1, processes=1):
    s = summary(err)
    assert s['processes'] == processes, s
    assert s['read']['transfers'] == reads and s['read']['bytes']['host'] == reads * SIZE, s
    assert s['failed'] == 0 and s['written']['transfers'] == 0, s
    return s


@test
def without_it_the_other_is_used(path):
    out = subprocess.run([LINKED, '-', path], capture_output=True, text=True, env=environment()).stdout
    assert out == THEIRS, out
    out = subprocess.run([LOADS, VENDOR, path], capture_output=True, text=True, env=environment()).stdout
    assert out == THEIRS, out


@test
def linked(path):
    out, err = run('--', LINKED, '-', path)
    assert out == OURS, out
    assert err == 'strait run: 97.7 KiB read (host 97.7 KiB), 0 B written, 1 transfers, 0 failed, 1 process\n', err


@test
def opened_by_name(path):
    for name in ('libcufile.so.0', 'libcufile.so'):
        assert run('--', LOADS, name, path)[0] == OURS


@test
def opened_by_path(path):
    assert run('--', LOADS, VENDOR, path)[0] == OURS


@test
def opened_by_path_in_a_wheel(path):
    """As auditwheel renames it, below a folder that Python would have it in."""
    folder = os.path.join(os.path.dirname(path), 'nvidia', 'cufile', 'lib')
    os.makedirs(folder)
    for name in ('libcufile.so.1.15.1', 'libcufile-0a1b2c3d.so.1.15.1'):
        wheel = shutil.copy(VENDOR, os.path.join(folder, name))
        assert run('--', LOADS, wheel, path)[0] == OURS, wheel
    other = shutil.copy(VENDOR, os.path.join(folder, 'libcufile_rdma.so.1'))
    assert run('--', LOADS, other, path)[0] == THEIRS, 'libcufile_rdma is another library'


@test
def opened_by_ctypes(path):
    code = ('import ctypes, sys\nl = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\nv = ctypes.c_int()\n'
            'l.cuFileGetVersion(ctypes.byref(v))\nl.cuFileDriverOpen()\nprint(v.value)\n')
    out, err = run('--json', '--', sys.executable, '-c', code, VENDOR)
    assert out == '1150\n', out
    summed(err, reads=0)


@test
def by_preload(path):
    assert run('--preload', '--', LINKED, '-', path)[0] == OURS
    assert run('--preload', '--', LOADS, 'libcufile.so.0', path)[0] == OURS


@test
def without_the_audit_library(path):
    """The command, the library and libcufile alone, in some folder."""
    folder = os.path.join(os.path.dirname(path), 'alone')
    os.makedirs(folder)
    for name in ('strait', 'libstrait.so.0', 'libcufile.so.0'):
        shutil.copy(os.path.join(BUILD, name), folder)
    done = subprocess.run([os.path.join(folder, 'strait'), 'run', LINKED, '-', path], capture_output=True, text=True,
                          env=environment())
    assert done.stdout == OURS, done
    assert done.stderr.startswith('note: libstrait-run.so is not installed beside strait'), done.stderr


@test
def another_library(path):
    out, err = run('--library', VENDOR, '--', LOADS, 'libcufile.so.0', path)
    assert out == THEIRS and err == 'strait run: no process used cuFile\n', out + err


@test
def children_are_counted(path):
    out, err = run('--json', '--', 'sh', '-c', f'{LINKED} - {path}; {LOADS} {VENDOR} {path}')
    assert out == OURS * 2, out
    summed(err, 2, 2)


@test
def forked_and_executed(path):
    out, err = run('--json', '--', LINKED, '-', path, 'fork')
    assert out == OURS * 2, out
    summed(err, 2, 2)
    out, err = run('--json', '--', LINKED, '-', path, 'exec')
    assert out == OURS * 2, out
    summed(err, 2, 2)


@test
def more_processes_than_places(path):
    out, err = run('--json', '--', 'sh', '-c', f'for i in $(seq 400); do {LOADS} libcufile.so.0 {path}; done')
    assert out == OURS * 400
    summed(err, 400, 400)


@test
def status_passes_through(path):
    for how in ('exit', '_exit'):
        summed(run('--json', '--', LINKED, '-', path, how, '7', code=7)[1])
    summed(run('--json', '--', LINKED, '-', path, 'kill', code=-signal.SIGKILL)[1])
    summed(run('--json', '--', LINKED, '-', path, 'abort', code=-signal.SIGABRT)[1])


@test
def signals_pass_through(path):
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        p = subprocess.Popen([STRAIT, 'run', '--json', '--', LINKED, '-', path, 'spin'], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=environment())
        assert p.stdout.readline() == OURS
        p.send_signal(sig)
        err = p.communicate(timeout=60 * SLOW)[1]
        assert p.returncode == -sig, p.returncode
        assert summed(err)['signal'] == sig


@test
def nothing_is_left_behind(path):
    before = set(os.listdir('/dev/shm'))
    run('--', LINKED, '-', path)
    run('--', LINKED, '-', path, 'kill', code=-signal.SIGKILL)
    run('--', '/no/such/program', code=127)
    left = [name for name in set(os.listdir('/dev/shm')) - before if name.startswith('strait-run')]
    for _ in range(50):
        left = [name for name in left if os.path.exists('/dev/shm/' + name)]
        time.sleep(0.1 if left else 0)
    assert not left, left


@test
def pipes_end_programs(path):
    """The command ignores SIGPIPE; what it starts must not."""
    out, err = run('--quiet', '--', 'sh', '-c', 'yes | head -n 1; kill -PIPE $$', code=-signal.SIGPIPE)
    assert out == 'y\n' and err == '', out + err


@test
def what_cannot_be_started(path):
    out, err = run('--', '/no/such/program', code=127)
    assert 'No such file' in err and 'no process' not in err, err
    run('--', os.path.dirname(path), code=126)
    out, err = run(code=2)
    assert 'no program is given' in err, err
    out, err = run('--library', '/no/such/library', '--', 'true', code=1)
    assert 'libcufile.so.0' in err, err
    run('--nonsense', '--', 'true', code=2)


@test
def words_of_the_program_are_its_own(path):
    out, err = run('--quiet', 'echo', '--json', '--help', '--', '-x')
    assert out == '--json --help -- -x\n' and err == '', out + err
    assert 'usage: strait run' in run('--help')[0]


@test
def environment_for_kvikio(path):
    env = environment()
    wanted = {'KVIKIO_COMPAT_MODE': '' if os.access('/run/udev', os.R_OK) else 'OFF',
              'CUFILE_ENV_PATH_JSON': '' if os.access('/etc/cufile.json', os.R_OK) else
                                      os.path.realpath(os.path.join(BUILD, 'cufile.json'))}
    show = ('--', 'sh', '-c', ''.join(f'echo ${name};' for name in wanted))
    out, err = run(*show, env=env)
    assert out == 'AUTO\n/nowhere\n' and 'KvikIO' not in err, out + err
    for name in wanted:
        env.pop(name)
    out, err = run(*show, env=env)
    assert out.splitlines() == list(wanted.values()), out
    assert all(f'{name}={value}' in err for name, value in wanted.items() if value), err
    out, err = run('--json', *show, env=env)
    assert summary(err)['environment'] == {name: value for name, value in wanted.items() if value}, err


@test
def environment_is_added_to(path):
    env = environment(LD_AUDIT=os.path.join(BUILD, 'libstrait-run.so'))
    out, _ = run('--quiet', '--', 'sh', '-c', 'echo $LD_AUDIT', env=env)
    assert out.strip().count(':') == 1, out


@test
def strrev_reverses_and_restores(path):
    """The example, on each kind of device; the GPU is the fake one."""
    text = os.path.join(os.path.dirname(path), 'hello')
    hello, reversed_ = 'Hello, GDS World!', '!dlroW SDG ,olleH'
    example, fake = os.path.join(BUILD, 'examples', 'example-strrev'), os.path.join(BUILD, 'tests', 'fakecuda')
    for device, library in (('host', ''), ('emu', ''), ('cuda', fake), (None, fake), (None, '/nonexistent')):
        for before, after in ((hello, reversed_), (reversed_, hello)):
            done = subprocess.run([example, *(['--device', device] if device else []), text], capture_output=True,
                                  text=True, env=dict(environment(), LD_LIBRARY_PATH=library))
            name = device or ('cuda' if library == fake else 'emu')
            assert done.returncode == 0 and not done.stderr, done
            assert done.stdout == f'before: {before}\n{name}: {after}\n', done.stdout
    with open(text, 'wb') as file:
        file.write(bytes(range(256)) * 4097 + b'x')
    for _ in range(2):
        subprocess.run([example, '--device', 'cuda', text], check=True, capture_output=True,
                       env=dict(environment(), LD_LIBRARY_PATH=fake))
    with open(text, 'rb') as file:
        assert file.read() == bytes(range(256)) * 4097 + b'x'


@test
def client_of_the_benchmark(path):
    """The program that is measured on a GPU: it looks at the bytes, and here that is all that counts."""
    client = os.path.join(BUILD, 'bench', 'bench-cufile-client')
    file = os.path.join(os.path.dirname(path), 'data')
    for way, n in (([], 14), (['--strait'], 14), (['--cost'], 8)):
        done = subprocess.run([client, '--host', '--rounds', '1', '--seconds', '0.05', *way, file, '64'],
                              capture_output=True, text=True, env=dict(environment(), LD_LIBRARY_PATH=BUILD))
        rows = [line.split('|') for line in done.stdout.splitlines()]
        assert done.returncode == 0 and len(rows) == n, done
        assert all(row[4] == 'ok' for row in rows if 'ReadAsync' not in row[0] or not way), done.stdout


def main():
    print(f'1..{len(TESTS)}', flush=True)
    failed = 0
    for number, function in enumerate(TESTS, 1):
        with tempfile.TemporaryDirectory(prefix='strait-run-test.') as folder:
            path = os.path.join(folder, 'file')
            with open(path, 'wb') as file:
                file.write(bytes(SIZE))
            try:
                function(path)
                print(f'ok {number} - {function.__name__}', flush=True)
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                text = str(error).replace('\n', '\n# ')
                print(f'not ok {number} - {function.__name__}\n# {type(error).__name__}: {text}', flush=True)
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
