#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command line, as a user meets it. TAP. The build directory is the argument, or $STRAIT_BUILD, or $BUILD."""
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import xml.dom.minidom

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath((sys.argv[1:] or [os.environ.get('STRAIT_BUILD') or os.environ.get('BUILD') or
                                          os.path.join(SOURCE, 'build')])[0])
STRAIT = os.path.join(BUILD, 'strait')
SLOW = max(1, int(os.environ.get('HARNESS_SLOW') or 1))
VERBS = ['info', 'explain', 'load', 'save', 'verify', 'bench', 'run', 'lab']
ROUTES = {'p2p', 'pagecache', 'staged', 'host'}
TESTS = []


class Skip(Exception):
    """The test cannot run here; the text says what is missing."""


def test(function):
    TESTS.append(function)
    return function


def strait(*args, code=0, timeout=60, **options):
    """Run the command and expect an exit status. Returns (stdout, stderr)."""
    done = subprocess.run([STRAIT, *map(os.fspath, args)], capture_output=True, timeout=timeout * SLOW,
                          stdin=subprocess.DEVNULL, **options)
    out, err = done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')
    assert done.returncode == code, f'strait {args}: exit {done.returncode}, not {code}\n{out}\n{err}'
    return out, err


def report(*args, code=0, **options):
    return json.loads(strait(*args, '--json', code=code, **options)[0])


def expect(condition, what):
    assert condition, what


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix='strait-cli.', dir='/var/tmp' if os.access('/var/tmp', os.W_OK) else None)
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def make(path, data):
    with open(path, 'wb') as file:
        file.write(data)
    return path


def read(path):
    with open(path, 'rb') as file:
        return file.read()


CRC_TABLE = []
for entry in range(256):
    for _ in range(8):
        entry = entry >> 1 ^ (0x82f63b78 if entry & 1 else 0)
    CRC_TABLE.append(entry)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xff]
    return f'{crc ^ 0xffffffff:08x}'


def has_cuda():
    return any(p['name'] == 'cuda' and p['devices'] for p in report('info')['providers'])


def sanitized():
    return subprocess.run(['grep', '-qE', '__[at]san_init', STRAIT], check=False).returncode == 0


@test
def version_is_the_librarys():
    out, _ = strait('--version')
    expect(re.fullmatch(r'strait \d+\.\d+\.\d+\n', out), out)
    expect(out.split()[1] == report('info')['version'], out)


@test
def help_names_every_verb():
    for args in (['help'], ['--help'], ['help', 'help']):
        out, err = strait(*args)
        expect(not err, err)
        for verb in VERBS:
            expect(f'strait {verb}' in out, f'{verb} is not in: {out}')


@test
def help_says_what_the_time_includes():
    for verb in ('load', 'save'):
        out, _ = strait('help', verb)
        expect(re.search(r'The time printed is .*CRC-32C', out, re.S), out)


@test
def help_of_a_verb_and_the_manual_agree():
    with open(os.path.join(SOURCE, 'docs/man/strait.1')) as file:
        manual = file.read().replace('\\-', '-')
    for verb in VERBS:
        out, _ = strait('help', verb)
        expect(out == strait(verb, '--help')[0], f'help {verb} and {verb} --help differ')
        expect(out.startswith(f'usage: strait {verb} '), out)
        options = re.findall(r'^  (--[a-z-]+)', out, re.M)
        expect(len(options) >= 3, out)
        for option in options:
            expect(option in manual, f'{option} of {verb} is not in the manual')


@test
def lab_is_found_and_told_what_to_run():
    out, _ = strait('lab', 'run', '--iommu', 'lazy', '--guests', '2', 'no-such-program', code=1)
    expect('no program of the suite matches "no-such-program"' in out, out)
    expect(out.endswith('\n0 passed, 1 failed, 0 skipped\n'), out)
    out, _ = strait('lab', 'run', '--module', '/no/such.ko', 'no-such-program', code=1)
    expect('no-such-program' in out, out)
    answer = report('lab', 'run', 'no-such-program', code=1)
    expect(answer['failed'] == 1 and answer['programs'][0]['results'][0]['verdict'] == 'fail', answer)


@test
def usage_errors():
    for args in ([], ['frobnicate'], ['help', 'frobnicate'], ['load'], ['load', 'a', 'b'], ['load', '--nonsense', 'a'],
                 ['load', 'a', '--device'], ['load', 'a', '--json=1'], ['save', 'a'], ['save', 'a', '--size', '12Q'],
                 ['save', 'a', '--size', '-1'], ['save', 'a', '--size', '99999999T'], ['save', 'a', '--size', '1.5'],
                 ['save', 'a', '--size', '1M', '--pattern', 'plaid'], ['load', 'a', '--route', 'scenic'],
                 ['load', 'a', '--direct', '--buffered'], ['load', 'a', '--format', 'gguf'],
                 ['load', 'a.safetensors', '--offset', '1'], ['load', 'a', '--format', 'safetensors', '--length', '1'],
                 ['bench', 'file', 'a', '--compare', 'host,tape'], ['verify', '/tmp', '--size', '0'],
                 ['bench', 'tape', 'a'], ['bench', 'file', 'a', '--threads', '0'],
                 ['bench', 'file', 'a', '--block', ''], ['bench', 'file', 'a', '--mode', 'sideways'],
                 ['bench', 'file', 'a', '--seconds', 'nan'], ['bench', 'file', 'a', '--compare', 'tape'],
                 ['bench', 'file', 'a', '--cached', '--direct'], ['lab'], ['lab', 'walk'], ['lab', 'shell', 'a'],
                 ['lab', 'shell', '--tap'], ['lab', 'run', '--iommu', 'on'], ['lab', 'run', '--kernel', '2.6'],
                 ['lab', 'run', '--topology', 'ring'], ['lab', 'run', '--guests', '9'], ['lab', 'run', 'a', 'b']):
        out, err = strait(*args, code=2)
        expect(not out, f'{args}: {out}')
        expect(re.search(r'^  \S', err, re.M), f'{args} does not say what to do next: {err}')
    error = report('load', code=2)
    expect(error['exit'] == 2 and error['error'] and error['hint'], error)


@test
def options_stand_anywhere():
    with folder() as path:
        file = make(f'{path}/-name', b'12345')
        first = report('load', '--offset=1', file, '--length', '2')
        last = json.loads(strait('load', '--offset', '1', '--length=2B', '--json', file)[0])
        expect(first['crc32c'] == last['crc32c'] == crc32c(b'23') and last['offset'] == 1, (first, last))
        for args in (['load', '--json', '--', '-name'], ['load', '--', '-name']):
            strait(*args, cwd=path)


@test
def sizes():
    with folder() as path:
        for text, size in (('1', 1), ('4K', 4096), ('4k', 4096), ('4KiB', 4096), ('4KB', 4000), ('1.5M', 1572864),
                           ('0', 0), ('3B', 3)):
            strait('save', f'{path}/f', '--size', text, '--device', 'host')
            expect(os.path.getsize(f'{path}/f') == size, f'{text} gave {os.path.getsize(f"{path}/f")}')


@test
def info_tells_everything():
    out, err = strait('info')
    for title in ('Devices', 'Drives', 'File systems', 'PCIe', 'IOMMU', 'Kernel', 'What Strait can do here', 'What is missing, and how to get it'):
        expect(re.search(f'^{title}', out, re.M), f'no {title} in: {out}')
    expect('emu:0' in out and 'host' in out, out)
    expect(not err, err)
    info = report('info')
    expect([d for d in info['devices'] if d['name'] == 'emu:0' and 'emulated' in d['can']], info['devices'])
    for provider in info['providers']:
        expect(provider['devices'] or provider['why'], f'no reason given: {provider}')
        expect(provider['devices'] or provider['why'] in out, provider)
    expect({'io_uring', 'cachestat', 'userfaultfd', 'udmabuf', 'p2pdma', 'strait_module'} <= set(info['kernel']), info)
    expect(set(info['peer_memory']) == {'core', 'clients'}, info)
    expect(info['can'] and all(line in out for line in info['can'] + info['more']), out)
    strait('info', '--all')


@test
def info_tells_of_cufile():
    with folder() as path:
        config = make(f'{path}/cufile.json', b'{ // settings\n "properties": { "io_batchsize": 64, "rdma_peer_type": "dmabuf",'
                      b' "posix_pool_slab_count": [1, 2], "use_pci_p2pdma": true, "frobnicate": null } }')
        env = dict(os.environ, CUFILE_ENV_PATH_JSON=config, CUFILE_NVTX='true', STRAIT_CUFILE_VERSION='1.19')
        out, err = strait('info', '--cufile', env=env)
        for title in ('cuFile on Strait', 'Devices', 'File systems', 'Settings', 'Parameters'):
            expect(re.search(f'^{title}', out, re.M), f'no {title} in: {out}')
        expect('emu:0, p2p: ' in out and 'reports        cuFile 1.19' in out and not err, out + err)
        told = report('info', '--cufile', env=env)
        expect(told['version'] == 1190 and told['library'].endswith('libcufile.so.0') and not told['unusable'], told)
        effect = {s['name']: (s['value'], s['effect']) for s in told['settings']}
        expect(effect['properties.io_batchsize'] == ('64', 'in force'), effect)
        expect(effect['properties.posix_pool_slab_count'] == ('1, 2', 'in force'), effect)
        expect(effect['properties.rdma_peer_type'] == ('"dmabuf"', 'ignored'), effect)
        expect(effect['properties.use_pci_p2pdma'] == ('true', 'accepted, no effect'), effect)
        expect(effect['properties.frobnicate'] == ('null', 'unknown, ignored'), effect)
        expect(effect['CUFILE_NVTX'] == ('true', 'accepted, no effect'), effect)
        parameters = {p['name']: p['value'] for p in told['parameters']}
        expect(parameters['properties.io_batchsize'] == '64' and parameters['profile.nvtx'] == 'true', parameters)
        expect(told['file'] == {'path': config, 'state': 'read'}, told['file'])
        routes = {r['name']: r for d in told['devices'] if d['name'] == 'emu:0' for r in d['routes']}
        expect(routes['staged']['usable'] and (routes['p2p']['usable'] or routes['p2p']['why']), routes)
        make(config, b'{ "a":\n oops')
        expect('line 2' in report('info', '--cufile', env=env)['file']['state'], 'a broken file')
        os.unlink(config)
        expect('No such file' in report('info', '--cufile', env=env)['file']['state'], 'a missing file')


@test
def explain_gives_route_and_reasons():
    with folder() as path:
        file = make(f'{path}/f', os.urandom(3 << 20))
        out, err = strait('explain', file, 'emu:0')
        expect(not err, err)
        told = report('explain', file, 'emu:0')
        expect(told['route'] in ROUTES and {r['name'] for r in told['routes']} == ROUTES, told)
        expect(told['file']['bytes'] == 3 << 20 and told['file']['fs'], told)
        expect(told['file']['direct'] or told['file']['direct_why'], told)
        expect(re.search(rf'^  route +{told["route"]}', out, re.M), out)
        order = ['p2p', 'pagecache', 'staged', 'host']
        for verdict in told['routes']:
            if order.index(verdict['name']) < order.index(told['route']) and not verdict['usable']:
                expect(verdict['why'] and verdict['why'] in out and verdict['fix'] in out, verdict)
        expect(report('explain', file, 'host')['route'] == 'host', 'host memory takes the host route')
        expect(report('explain', file, 'emu:0', '--write')['op'] == 'write', 'a write')
        expect('No such file' in strait('explain', f'{path}/none', 'emu:0', code=1)[1], 'no file')


@test
def explain_says_why_there_is_no_gpu():
    if has_cuda():
        raise Skip('there is a GPU')
    with folder() as path:
        file = make(f'{path}/f', b'x')
        out, err = strait('explain', file, 'cuda:0', code=4)
        expect('libcuda.so.1' in out and 'cuda:0' in err, out + err)
        told = report('explain', file, 'cuda:0', code=4)
        expect('libcuda.so.1' in told['error'] and not told['device_present'] and told['exit'] == 4, told)
        expect('libcuda.so.1' in report('load', file, '--device', 'cuda:0', code=4)['error'], 'load tells as well')


@test
def load_sums_up_what_is_in_memory():
    data = os.urandom(1 << 20) + b'odd end'
    with folder() as path:
        file = make(f'{path}/f', data)
        crc = crc32c(data)
        for args in ([], ['--device', 'host'], ['--device', 'emu'], ['--route', 'staged', '--device', 'emu:0'],
                     ['--route', 'staged,pagecache', '--device', 'emu:0'], ['--direct'], ['--buffered'], ['--no-uring'],
                     ['--direct', '--no-uring']):
            told = report('load', file, *args)
            expect(told['crc32c'] == crc and told['bytes'] == len(data), f'{args}: {told} {crc}')
            expect(sum(told['routes'].values()) == len(data) and set(told['routes']) <= ROUTES, told)
            expect(told['seconds'] > 0 and told['gb_per_s'] > 0, told)
        part = report('load', file, '--offset', '4097', '--length', '100001')
        expect(part['crc32c'] == crc32c(data[4097:104098]) and part['bytes'] == 100001, part)
        expect(report('load', file, '--offset', str(len(data)))['bytes'] == 0, 'at the end there is nothing')
        expect(report('load', file, '--length', '1G')['bytes'] == len(data), 'no more than there is')
        out, _ = strait('load', file)
        expect(crc in out and 'GB/s' in out and 'route' in out, out)


@test
def load_what_cannot_be_loaded():
    with folder() as path:
        file = make(f'{path}/f', b'12345')
        empty = report('load', make(f'{path}/empty', b''))
        expect(empty['bytes'] == 0 and empty['crc32c'] == '00000000' and empty['routes'] == {}, empty)
        for bad in (f'{path}/none', path, '/dev/null'):
            expect(bad in strait('load', bad, code=1)[1], bad)
        strait('load', file, '--offset', '6', code=2)
        strait('load', file, '--device', 'emu:99', code=4)
        strait('load', file, '--device', 'toaster', code=4)
        _, err = strait('load', file, '--route', 'host', '--device', 'emu:0', code=4)
        expect('host' in err, err)
        if report('info')['kernel']['strait_module']:
            told = report('load', file, '--route', 'p2p', '--device', 'emu:0', code=4)
            expect('p2p' in told['error'] and told['hint'], told)


def safetensors(path, tensors, metadata=None):
    """Write a file of name -> (dtype, shape, bytes). Gives its path."""
    header, at = {'__metadata__': metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return make(path, struct.pack('<Q', len(text)) + text + b''.join(data for _, _, data in tensors.values()))


@test
def load_safetensors():
    tensors = {'embed': ('F32', [100, 50], os.urandom(20000)), 'odd': ('U8', [333], os.urandom(333)),
               'scalar': ('BF16', [], os.urandom(2)), 'empty': ('I64', [0, 4], b''),
               'line\nbreak "quoted"': ('F8_E4M3', [2, 3, 5], os.urandom(30))}
    total = sum(len(data) for _, _, data in tensors.values())
    with folder() as path:
        file = safetensors(f'{path}/m.safetensors', tensors, {'by': 'a test'})
        for args in ([], ['--verify'], ['--device', 'host', '--verify'], ['--device', 'emu:0', '--route', 'staged'],
                     ['--direct', '--verify'], ['--no-uring', '--buffered', '--verify'],
                     ['--format', 'safetensors', '--verify']):
            told = report('load', file, *args)
            expect(told['format'] == 'safetensors' and told['tensor_count'] == len(tensors), told)
            expect(told['bytes'] == total == sum(told['routes'].values()) and told['gb_per_s'] > 0, told)
            expect(told.get('good') is ('--verify' in args or None), told)
            expect({t['name'] for t in told['tensors']} == set(tensors), told)
            for t in told['tensors']:
                dtype, shape, data = tensors[t['name']]
                expect((t['dtype'], t['shape'], t['bytes']) == (dtype, shape, len(data)), t)
                expect(t['crc32c'] == crc32c(data) == t.get('file_crc32c', t['crc32c']), t)
                expect(read(file)[t['file_offset']:][:len(data)] == data, t)
        out, err = strait('load', file, '--verify')
        expect('embed' in out and '[100, 50]' in out and crc32c(tensors['odd'][2]) in out and not err, out + err)
        expect('no mismatch' in out and 'line?break' in out and 'tensors  5' in out, out)
        os.rename(file, f'{path}/model')
        told = report('load', f'{path}/model')
        expect('tensors' not in told and told['crc32c'] == crc32c(read(f'{path}/model')), 'by its ending')
        expect(report('load', f'{path}/model', '--format', 'safetensors')['tensors'], 'or as told')
        os.rename(f'{path}/model', file)
        told = report('load', file, '--format=raw', '--offset', '1', '--verify')
        expect(told['crc32c'] == told['file_crc32c'] == crc32c(read(file)[1:]) and told['good'], told)
        expect('matches' in strait('load', file, '--format', 'raw', '--verify')[0], 'raw, in words')
        none = report('load', safetensors(f'{path}/none.safetensors', {}), '--verify')
        expect(none['tensors'] == [] and none['bytes'] == 0 and none['good'], none)
        told = report('load', file, '--route', 'host', '--device', 'emu:0', code=4)
        expect('host' in told['error'], told)
        env = dict(os.environ, STRAIT_EMU_MEMORY=str(2 << 20))
        big = safetensors(f'{path}/big.safetensors', {'a': ('U8', [3 << 20], bytes(3 << 20))})
        expect('--format raw' in report('load', big, '--device', 'emu:0', code=1, env=env)['hint'], 'no room')


@test
def load_safetensors_shows_as_many_as_asked():
    with folder() as path:
        file = safetensors(f'{path}/m.safetensors', {f'layer.{k:02}': ('U8', [k], bytes(k)) for k in range(25)})
        out, _ = strait('load', file)
        expect('layer.19' in out and 'layer.20' not in out and '5 more' in out, out)
        out, _ = strait('load', file, '--all')
        expect('layer.24' in out and 'more' not in out, out)
        expect(len(report('load', file)['tensors']) == 25, 'all of them in JSON')


@test
def load_malformed_safetensors():
    with folder() as path:
        good = read(safetensors(f'{path}/good', {'a': ('F32', [4], bytes(16)), 'b': ('F32', [4], bytes(16))}))
        header = json.dumps({'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 12]}}).encode()
        for name, data, why in (('empty', b'', 'too short'), ('noise', b'\xff' * 64, 'first eight bytes'),
                                ('cut', good[:-1], 'truncated'), ('more', good + b'x', 'belong to no tensor'),
                                ('json', struct.pack('<Q', 3) + b'{]}', 'not JSON'),
                                ('length', struct.pack('<Q', len(header)) + header + bytes(12), 'shape')):
            file = make(f'{path}/{name}.safetensors', data)
            _, err = strait('load', file, code=1)
            expect(why in err and file in err and '--format raw' in err, f'{name}: {err}')
            expect(why in report('load', file, code=1)['error'], name)
            strait('load', file, '--format', 'raw')


@test
def names_may_be_anything():
    with folder() as path:
        for name in (b'with "quotes" and \\', b'new\nline', b'\xff\xfe not utf-8', 'gr\u00fc\u00dfe'.encode(), b'\x01'):
            file = make(os.path.join(path.encode(), name), b'12345')
            told = json.loads(strait('load', '--json', os.fsdecode(file))[0])
            expect(told['path'] == os.fsencode(file).decode(errors='replace'), told)


@test
def files_larger_than_the_memory():
    data = os.urandom(3 << 20) + b'end'
    env = dict(os.environ, STRAIT_EMU_MEMORY=str(2 << 20))
    with folder() as path:
        file = make(f'{path}/f', data)
        told = report('load', file, '--device', 'emu:0', env=env)
        expect(told['bytes'] == len(data) and told['crc32c'] == crc32c(data), told)
        told = report('save', f'{path}/g', '--from', file, '--device', 'emu:0', env=env)
        expect(read(f'{path}/g') == data and told['crc32c'] == crc32c(data), told)
        small = report('save', f'{path}/g', '--size', '5000001', '--device', 'emu:0', env=env)
        large = report('save', f'{path}/g', '--size', '5000001', '--device', 'emu:0')
        expect(small['crc32c'] == large['crc32c'] and small['bytes'] == 5000001, (small, large))
        env['STRAIT_EMU_MEMORY'] = str(8 << 20)
        told = report('verify', path, '--size', '9000001', '--device', 'emu:0', env=env)
        expect(told['good'] and told['bytes_verified'] == 4 * 9000001, told)
        strait('bench', 'file', file, '--block', '1M', '--depth', '64', '--device', 'emu:0', code=1, env=env)


@test
def save_is_repeatable():
    with folder() as path:
        file, crc = f'{path}/f', {}
        for seed in ('1', '2', '0x1'):
            told = report('save', file, '--size', '1000003', '--seed', seed)
            crc[seed] = told['crc32c']
            data = read(file)
            expect(len(data) == 1000003 and crc32c(data) == told['crc32c'], told)
            expect(told['bytes'] == 1000003 and sum(told['routes'].values()) == 1000003, told)
            expect(report('load', file)['crc32c'] == told['crc32c'], 'what was saved is loaded')
        expect(crc['1'] == crc['0x1'] != crc['2'], crc)
        expect(report('save', file, '--size', '1000003', '--device', 'host')['crc32c'] == crc['1'], 'on any device')
        strait('save', file, '--size', '4096', '--pattern', 'zero')
        expect(read(file) == bytes(4096), 'zeros')
        strait('save', file, '--size', '24', '--pattern', 'index', '--seed', '5')
        expect(read(file) == b''.join(n.to_bytes(8, 'little') for n in (5, 6, 7)), read(file))
        expect(os.listdir(path) == ['f'], os.listdir(path))


@test
def save_copies_a_file():
    data = os.urandom(2000003)
    with folder() as path:
        source = make(f'{path}/a', data)
        told = report('save', f'{path}/b', '--from', source)
        expect(read(f'{path}/b') == data and told['read']['bytes'] == len(data), told)
        strait('save', source, '--from', source)
        expect(read(source) == data, 'onto itself')
        strait('save', f'{path}/b', '--from', source, '--size', '1000')
        expect(read(f'{path}/b') == data[:1000], 'a part')
        strait('save', f'{path}/c', '--from', make(f'{path}/empty', b''))
        expect(read(f'{path}/c') == b'', 'nothing')


@test
def save_replaces_whole_or_not_at_all():
    with folder() as path:
        old = make(f'{path}/f', b'old')
        os.chmod(old, 0o640)
        os.symlink('f', f'{path}/link')
        strait('save', f'{path}/link', '--size', '1M')
        expect(os.path.islink(f'{path}/link') and os.path.getsize(old) == 1 << 20, 'the file, not the link')
        expect(stat.S_IMODE(os.stat(old).st_mode) == 0o640, 'its mode stays')
        before = read(old)
        _, err = strait('save', old, '--size', '8000T', code=1)
        expect('cannot' in err and re.search(r'^  \S', err, re.M), err)
        strait('save', old, '--from', f'{path}/none', code=1)
        strait('save', old, '--size', '1M', '--route', 'p2p,pagecache', '--device', 'emu:0', code=4)
        expect(read(old) == before, 'a run that fails leaves the old file')
        expect(sorted(os.listdir(path)) == ['f', 'link'], os.listdir(path))
        for bad in (path, f'{path}/no/f', '/dev/null'):
            strait('save', bad, '--size', '1', code=1)


@test
def save_killed_leaves_nothing():
    killed = 0
    with folder() as path:
        for delay in (0.01, 0.03, 0.1):
            make(f'{path}/f', b'old')
            run = subprocess.Popen([STRAIT, 'save', f'{path}/f', '--size', '1G'], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
            time.sleep(delay * SLOW)
            run.kill()
            killed += run.wait() == -signal.SIGKILL
            expect(os.listdir(path) == ['f'], os.listdir(path))
            expect(run.returncode == 0 or read(f'{path}/f') == b'old', 'the old file is as it was')
    expect(killed, 'it was too fast to be killed even once')


@test
def block_devices_need_force():
    if os.geteuid():
        raise Skip('only root makes device nodes')
    with folder() as path:
        try:
            os.mknod(f'{path}/disk', stat.S_IFBLK | 0o600, os.makedev(7, 250))  # a loop device that nobody has made
        except OSError as error:
            raise Skip(f'device nodes cannot be made: {error}') from error
        for args in (['save', f'{path}/disk', '--size', '1M'], ['verify', f'{path}/disk', '--size', '1M'],
                     ['bench', 'file', f'{path}/disk', '--mode', 'randwrite']):
            expect('--force' in strait(*args, code=2)[1], args)


@test
def verify_finds_nothing_wrong():
    with folder() as path:
        for args in ([], ['--device', 'host'], ['--direct'], ['--buffered'], ['--no-uring'],
                     ['--route', 'staged', '--device', 'emu:0'], ['--route', 'pagecache', '--device', 'emu:0']):
            told = report('verify', path, '--size', '5000001', '--seed', '7', *args)
            expect(told['good'] and told['bytes_verified'] == 4 * 5000001, f'{args}: {told}')
            expect(len(told['passes']) == 4 and all(p['good'] for p in told['passes']), told)
            expect(sum(told['write']['routes'].values()) == 5000001, told)
            expect(sum(told['read']['routes'].values()) == 3 * 5000001, told)
        for size in ('1', '7', '4096', '65537'):
            expect(report('verify', path, '--size', size, '--seed', size)['good'], size)
        expect('no mismatch' in strait('verify', f'{path}/new', '--size', '1M')[0], 'in words')
        expect(os.listdir(path) == [], os.listdir(path))


@test
def verify_spares_what_is_there():
    with folder() as path:
        file = make(f'{path}/f', b'precious')
        expect('--force' in strait('verify', file, code=2)[1], 'refused')
        expect(read(file) == b'precious', 'and untouched')
        expect(report('verify', file, '--size', '100001', '--force')['good'], 'with --force')
        expect(os.path.getsize(file) == 100001, 'it stays')
        strait('verify', f'{path}/no/dir', code=1)


@contextlib.contextmanager
def preloaded(code):
    """An environment in which functions of C code replace functions of the program."""
    if sanitized():
        raise Skip('a sanitizer does not take preloaded libraries')
    if not shutil.which('cc'):
        raise Skip('no C compiler')
    with folder() as path:
        yield dict(os.environ, LD_PRELOAD=library(f'{path}/shim.so', code))


def library(path, code):
    """C code as a shared library."""
    source = make(f'{path}.c', code.encode())
    subprocess.run(['cc', '-shared', '-fPIC', f'-I{SOURCE}/include', f'-I{SOURCE}/tools/strait', '-o', path, source],
                   check=True)
    return path


DIFFERS = '''
#include <stddef.h>
#include <stdint.h>

int strait_region_compare(void *a, uint64_t ao, void *b, uint64_t bo, size_t len, uint64_t *where)
{
	(void)a, (void)ao, (void)b, (void)bo;
	*where = len > 12345 ? 12345 : len;
	return 0;
}
'''

# The file changes after it was loaded.
CHANGES = '''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int strait_safetensors_load(void *st, void *region, uint32_t routes, int64_t timeout, void *result)
{
	int (*real)(void *, void *, uint32_t, int64_t, void *) = dlsym(RTLD_NEXT, "strait_safetensors_load");
	int rc = real(st, region, routes, timeout, result), fd = open(getenv("CHANGED"), O_RDWR);
	struct stat s;

	if (fstat(fd, &s) || pwrite(fd, "!", 1, s.st_size - 1) != 1)
		abort();
	close(fd);
	return rc;
}
'''

# A device that claims to be CUDA's, the calls of its driver, and a working libcufile for memory
# that the CPU can access. REFUSE is its error for a file, FAIL its error for a transfer.
CUDA_NAME = '''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <strait/device.h>

int strait_device_info(struct strait_device *dev, struct strait_device_info *info)
{
	int (*real)(struct strait_device *, struct strait_device_info *) = dlsym(RTLD_NEXT, "strait_device_info");
	int rc = real(dev, info);

	strcpy(info->provider, "cuda");
	return rc;
}
'''

FAKE_CUDA = '''
static _Thread_local void *current;
void *fake_current(void) { return current; }
int cuInit(unsigned int flags) { return flags; }
int cuDeviceGet(int *dev, int n) { *dev = n; return 0; }
int cuDevicePrimaryCtxRetain(void **ctx, int dev) { *ctx = &current; return dev; }
int cuDevicePrimaryCtxRelease_v2(int dev) { return dev; }
int cuCtxSetCurrent(void *ctx) { current = ctx; return 0; }
'''

FAKE_CUFILE = '''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "verbs/bench/cufile.h"

static struct cufile_event done[CUFILE_BATCH_MAX];
static __thread unsigned int n_done;
static __thread struct cufile_event mine[CUFILE_BATCH_MAX];
static const struct cufile_status good;

static int from_env(const char *name)
{
	return getenv(name) ? atoi(getenv(name)) : 0;
}

static ssize_t move(void *fh, void *base, size_t len, off_t off, off_t to, int write)
{
	void *(*current)(void) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_current");
	int fd = (int)(long)fh - 1;

	if (from_env("FAIL"))
		return -from_env("FAIL");
	if (!current())
		return -5011;
	return write ? pwrite(fd, (char *)base + to, len, off) : pread(fd, (char *)base + to, len > 8192 ? 8192 : len, off);
}

struct cufile_status cuFileDriverOpen(void) { return good; }
struct cufile_status cuFileDriverClose(void) { return good; }
struct cufile_status cuFileBufRegister(const void *p, size_t n, int f) { (void)p, (void)n, (void)f; return good; }
struct cufile_status cuFileBufDeregister(const void *p) { (void)p; return good; }
struct cufile_status cuFileHandleRegister(void **fh, struct cufile_descr *d)
{
	*fh = (void *)(long)(d->handle.fd + 1);
	return (struct cufile_status){ .err = d->type == 1 ? from_env("REFUSE") : 5022 };
}
void cuFileHandleDeregister(void *fh) { (void)fh; }
ssize_t cuFileRead(void *fh, void *base, size_t len, off_t off, off_t to) { return move(fh, base, len, off, to, 0); }
ssize_t cuFileWrite(void *fh, const void *b, size_t n, off_t o, off_t to) { return move(fh, (void *)b, n, o, to, 1); }
struct cufile_status cuFileBatchIOSetUp(void **b, unsigned int n)
{
	*b = done;
	return (struct cufile_status){ .err = n > CUFILE_BATCH_MAX ? 5022 : 0 };
}
struct cufile_status cuFileBatchIOSubmit(void *b, unsigned int n, struct cufile_request *r, unsigned int flags)
{
	(void)b, (void)flags;
	if (n_done)
		abort(); /* one submission at a time */
	for (; n_done < n; n_done++) {
		struct cufile_request *q = &r[n_done];
		ssize_t all = 0, got = 1;

		for (; got > 0 && (size_t)all < q->size; all += got)
			got = move(q->fh, q->base, q->size - all, q->file_offset + all, q->base_offset + all, q->opcode);
		mine[n_done] = (struct cufile_event){ q->cookie, got > 0 ? CUFILE_COMPLETE : 0x40, got > 0 ? all : got };
	}
	return good;
}
struct cufile_status cuFileBatchIOGetStatus(void *b, unsigned int min, unsigned int *n, struct cufile_event *e,
					    struct timespec *t)
{
	(void)b, (void)min, (void)t;
	*n = *n > 3 ? 3 : *n;
	n_done -= *n;
	memcpy(e, mine + n_done, *n * sizeof(*e));
	return good;
}
void cuFileBatchIODestroy(void *b) { (void)b; }
'''

NO_TMPFILE = '''
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if ((flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
'''


@test
def works_where_every_file_has_a_name():
    with preloaded(NO_TMPFILE) as env, folder() as path:
        file = f'{path}/f'
        told = json.loads(strait('save', file, '--size', '100001', '--json', env=env)[0])
        expect(told['in_place'] and crc32c(read(file)) == told['crc32c'], told)
        _, err = strait('save', file, '--size', '10', env=env)
        expect('in place' in err and os.path.getsize(file) == 10, err)
        strait('save', f'{path}/new', '--size', '1M', '--route', 'p2p,pagecache', '--device', 'emu:0', code=4, env=env)
        expect(report('verify', path, '--size', '100001', env=env)['good'], 'verify')
        expect(os.listdir(path) == ['f'], os.listdir(path))


@test
def verify_tells_a_mismatch():
    with preloaded(DIFFERS) as env, folder() as path:
        out, err = strait('verify', path, '--size', '1M', code=3, env=env)
        expect('12345' in out and 'mismatch' in err and 'no mismatch' not in out, out + err)
        told = report('verify', path, '--size', '1M', code=3, env=env)
        expect(not told['good'] and told['passes'][1]['first_difference'] == 12345, told)


@test
def load_tells_a_mismatch():
    tensors = {f't{k}': ('U8', [100], os.urandom(99) + b'.') for k in range(30)}
    with preloaded(CHANGES) as env, folder() as path:
        file = safetensors(f'{path}/m.safetensors', tensors)
        env['CHANGED'] = file
        out, err = strait('load', file, '--verify', code=3, env=env)
        expect(re.search(r't29 .*DIFFERS', out) and '1 of 30' in out and 'no mismatch' not in out, out)
        expect('mismatch' in err, err)
        safetensors(file, tensors)
        told = report('load', file, '--verify', code=3, env=env)
        wrong = [t['name'] for t in told['tensors'] if t['crc32c'] != t['file_crc32c']]
        expect(not told['good'] and wrong == ['t29'], told)
        expect(told['tensors'][29]['crc32c'] == crc32c(tensors['t29'][2]), 'what was loaded')


@test
def bench_says_why_it_cannot_compare():
    with folder() as path:
        file = make(f'{path}/f', os.urandom(1 << 20))
        env = dict(os.environ, CUFILE_LIBRARY=f'{path}/none/libcufile.so')
        args = ['bench', 'file', file, '--seconds', '0', '--block', '64K', '--compare']
        out, err = strait(*args, 'cufile', env=env)
        expect('not compared with cuFile' in out and env['CUFILE_LIBRARY'] in out and not err, out + err)
        expect('/CUFILE' not in out and '/HOST' not in out, out)
        told = report(*args, 'host,cufile', env=env)
        expect([r['series'] for r in told['results']] == ['strait', 'host'], told)
        expect(env['CUFILE_LIBRARY'] in told['compare']['cufile']['error'], told)
        expect('ratio_to_host' in told['results'][0] and 'ratio_to_cufile' not in told['results'][0], told)
        expect('compare' not in report(*args, 'host', env=env), 'only where it was asked for')


@test
def bench_does_not_compare_strait_with_itself():
    own = f'{BUILD}/libcufile.so.0'
    with folder() as path:
        file = make(f'{path}/f', os.urandom(1 << 20))
        args = ['bench', 'file', file, '--seconds', '0', '--block', '64K', '--compare', 'cufile']
        named = report(*args, env=dict(os.environ, CUFILE_LIBRARY=own))['compare']['cufile']
        expect(os.path.realpath(own) == named['library'] and "Strait's own" in named['error'], named)
        env = {k: v for k, v in os.environ.items() if k not in ('CUFILE_LIBRARY', 'LD_LIBRARY_PATH')}
        found = report(*args, env=env)['compare']['cufile']
        expect(found['library'] != os.path.realpath(own) or "Strait's own" in found['error'], found)
        other = library(f'{path}/libcufile.so.0', FAKE_CUFILE)
        found = report(*args, env=dict(env, LD_LIBRARY_PATH=f'{BUILD}:{path}'))['compare']['cufile']
        expect(found['library'] == os.path.realpath(other) and 'own' not in found['error'], found)


@test
def bench_compares_with_cufile():
    with preloaded(CUDA_NAME) as env, folder() as path:
        env.update(LD_LIBRARY_PATH=path, CUFILE_LIBRARY=library(f'{path}/libcufile.so.0', FAKE_CUFILE))
        library(f'{path}/libcuda.so.1', FAKE_CUDA)
        args = ['bench', 'file', f'{path}/f', '--size', '4M', '--block', '4K,64K', '--seconds', '0', '--device',
                'emu:0', '--mode', 'read,randread,write,randwrite', '--compare', 'host,cufile']
        for more in ([], ['--threads', '3'], ['--depth', '8', '--threads', '2'], ['--depth', '200', '--direct']):
            told = report(*args, *more, env=env)
            rows = told['results']
            expect([r['series'] for r in rows] == ['strait', 'host', 'cufile'] * 8, rows)
            expect('error' not in told['compare']['cufile'], told)
            expect(told['compare']['cufile']['library'] == os.path.realpath(env['CUFILE_LIBRARY']), told)
            for row in rows:
                expect(row['bytes'] == 4 << 20 and row['ops'] == row['bytes'] // row['block'], row)
                expect(('ratio_to_cufile' in row) == (row['series'] == 'strait'), row)
            expect(rows[2]['depth'] == min(rows[0]['depth'], 128), rows[2])
        out, _ = strait(*args, '--plot', f'{path}/p.svg', env=env)
        expect(f'compared with cuFile of {os.path.realpath(path)}/' in out, out)
        expect('/CUFILE' in out and 'not compared' not in out and 'cuFile' in read(f'{path}/p.svg').decode(), out)
        for name, code in (('REFUSE', 5027), ('REFUSE', 5030), ('FAIL', 5011)):
            for depth in ('1', '4'):
                out, _ = strait(*args, '--depth', depth, env=dict(env, **{name: str(code)}))
                expect(re.search(f'not compared with cuFile: .* {code}', out), out)
                expect(code == 5011 or ('udev' in out and 'containers' in out), out)
        told = report(*args, env=dict(env, REFUSE='5027'))
        expect(told['compare']['cufile']['code'] == 5027 and 'udev' in told['compare']['cufile']['error'], told)
        expect([r['series'] for r in told['results']] == ['strait', 'host'] * 8, told)
        del env['LD_PRELOAD']
        out, _ = strait(*args, env=env)
        expect('not compared with cuFile' in out and 'emu:0' in out, out)


@test
def bench_measures():
    with folder() as path:
        file = make(f'{path}/f', os.urandom(8 << 20))
        plot = f'{path}/out <&>.svg'
        told = report('bench', 'file', file, '--block', '4K,64K,1M', '--seconds', '0.05', '--mode', 'read,randread',
                      '--cached', '--compare', 'host', '--plot', plot)
        rows = told['results']
        expect(len(rows) == 12 and told['cache'] == 'cached', told)
        for row in rows:
            expect(row['bytes'] == row['ops'] * row['block'] and row['ops'] > 0, row)
            expect(row['gb_per_s'] > 0 and row['ops_per_s'] > 0 and row['cpu_cores'] >= 0, row)
            expect(row['cpu_ms_per_gib'] >= 0 and row['machine_cpu_ms_per_gib'] >= 0, row)
            lat = row['latency_us']
            expect(0 < lat['p50'] <= lat['p99'] <= lat['max'] and lat['avg'] <= lat['max'], row)
            expect(sum(row['routes'].values()) == row['bytes'], row)
            expect(('ratio_to_host' in row) == (row['series'] == 'strait'), row)
        svg = xml.dom.minidom.parse(plot)
        expect(len(svg.getElementsByTagName('polyline')) == 4, 'a line for each series')
        text = ' '.join(t.firstChild.data for t in svg.getElementsByTagName('text'))
        for word in ('64K', '1M', 'GB/s', 'read', 'randread', 'block size'):
            expect(word in text, f'{word} is not in the plot: {text}')
        strait('bench', 'file', file, '--seconds', '0.05', '--plot', plot)
        mine, staged = report('bench', 'file', file, '--seconds', '0', '--device', 'emu:0', '--compare', 'staged')['results']
        expect(mine['ratio_to_staged'] > 0 and 'ratio_to_staged' not in staged, mine)
        expect(staged['series'] == 'staged' and staged['routes']['staged'] == staged['bytes'] == 8 << 20, staged)
        expect(len(xml.dom.minidom.parse(plot).getElementsByTagName('rect')) == 2, 'one bar and the background')
        expect(read(file) and os.path.getsize(file) == 8 << 20, 'reading changes nothing')


@test
def bench_with_threads_and_depth():
    with folder() as path:
        for args in (['--threads', '3'], ['--depth', '8'], ['--threads', '2', '--depth', '4', '--direct'],
                     ['--device', 'host', '--depth', '4'], ['--no-uring', '--direct', '--depth', '2'],
                     ['--block', '65537', '--direct', '--depth', '3']):
            told = report('bench', 'file', f'{path}/new', '--size', '8M', '--seconds', '0.05', '--mode',
                          'read,write,randread,randwrite', '--block', '64K', *args)
            expect(len(told['results']) == 4 and all(r['ops'] for r in told['results']), told)
            expect(os.listdir(path) == [], 'the file made for it is gone')
        once = report('bench', 'file', f'{path}/new', '--size', '8M', '--seconds', '0', '--threads', '2')['results'][0]
        expect(once['bytes'] == 8 << 20, once)
        out, _ = strait('bench', 'file', f'{path}/new', '--size', '1M', '--seconds', '0', '--keep', '--compare', 'host')
        expect('P99' in out and 'plain I/O' in out, out)
        expect(os.path.getsize(f'{path}/new') == 1 << 20, 'kept')


@test
def bench_spares_what_is_there():
    with folder() as path:
        file = make(f'{path}/f', b'p' * 100000)
        for mode in ('write', 'randwrite', 'read,write'):
            expect('--force' in strait('bench', 'file', file, '--mode', mode, code=2)[1], mode)
        expect(read(file) == b'p' * 100000, 'untouched')
        strait('bench', 'file', file, '--mode', 'write', '--block', '10K', '--seconds', '0', '--force')
        expect(read(file) != b'p' * 100000 and os.path.getsize(file) == 100000, 'with --force')
        strait('bench', 'file', file, '--block', '1M', code=2)
        strait('bench', 'file', file, '--size', '1M', code=2)
        strait('bench', 'file', path, code=1)
        strait('bench', 'file', file, '--block', '4K', '--seconds', '0', '--plot', f'{path}/no/p.svg', code=1)


@test
def closed_output():
    run = subprocess.Popen([STRAIT, 'info'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.close()
    expect(run.wait(60 * SLOW) == 0 and not run.stderr.read(), 'a reader that went away is no error')
    run.stderr.close()
    if not os.path.exists('/dev/full'):
        raise Skip('no /dev/full')
    with open('/dev/full', 'wb') as full:
        run = subprocess.run([STRAIT, 'info'], stdout=full, stderr=subprocess.PIPE, check=False)
    expect(run.returncode == 1 and b'No space left' in run.stderr, run)


@test
def progress_only_on_a_terminal():
    with folder() as path:
        file = make(f'{path}/f', os.urandom(1 << 20))
        expect(strait('load', file)[1] == '', 'none in a pipe')
        ours, theirs = pty.openpty()
        run = subprocess.run([STRAIT, 'load', file], stdout=subprocess.PIPE, stderr=theirs, check=True)
        os.close(theirs)
        shown = b''
        with contextlib.suppress(OSError):
            while True:
                piece = os.read(ours, 4096)
                if not piece:
                    break
                shown += piece
        os.close(ours)
        expect(b'100 %' in shown and b'GB/s' in shown and shown.endswith(b'\x1b[K'), shown)
        expect(b'100 %' not in run.stdout, run.stdout)


@test
def signals_end_it_cleanly():
    with folder() as path:
        for number in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.Popen([STRAIT, 'bench', 'file', f'{path}/f', '--size', '4M', '--seconds', '60'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.5 * SLOW)
            if run.poll() is not None:
                expect(False, (run.returncode, run.communicate()))
            run.send_signal(number)
            _, err = run.communicate(timeout=10 * SLOW)
            expect(run.returncode == -number and not err, (run.returncode, err))
            expect(os.listdir(path) == [], os.listdir(path))


@test
def works_for_everybody():
    if os.geteuid():
        raise Skip('the other tests run as an ordinary user already')
    try:
        subprocess.run([STRAIT, '--version'], user=65534, group=65534, extra_groups=[], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skip(f'nobody may not run {STRAIT}: {error}') from error
    with folder() as path:
        os.chown(path, 65534, 65534)
        nobody = {'user': 65534, 'group': 65534, 'extra_groups': []}
        strait('info', **nobody)
        strait('info', '--json', **nobody)
        strait('save', f'{path}/f', '--size', '1M', **nobody)
        strait('load', f'{path}/f', **nobody)
        strait('explain', f'{path}/f', 'emu:0', **nobody)
        strait('verify', path, '--size', '1M', **nobody)
        strait('bench', 'file', f'{path}/f', '--seconds', '0', '--direct', '--depth', '4', '--block', '64K', **nobody)
        os.chown(f'{path}/f', 0, 0)
        os.chmod(f'{path}/f', 0o600)
        expect('Permission denied' in strait('load', f'{path}/f', code=1, **nobody)[1], 'no right to read')
        expect('Permission denied' in strait('save', f'{path}/f', '--size', '1', code=1, **nobody)[1], 'nor to write')


def main():
    print(f'1..{len(TESTS)}', flush=True)
    failed = 0
    for number, function in enumerate(TESTS, 1):
        name, problem, skip = function.__name__, '', ''
        try:
            function()
        except Skip as reason:
            skip = f' # SKIP {reason}'
        except Exception:  # whatever it is: the test has failed, and the others still run
            problem = traceback.format_exc()
        print(f'{"not " if problem else ""}ok {number} - {name}{skip}')
        for line in problem.splitlines():
            print(f'# {line}')
        sys.stdout.flush()
        failed += bool(problem)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
