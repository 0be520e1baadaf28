#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python package on a GPU beside safetensors and NVIDIA's cuFile: one table, first and later calls, compared bit by bit.

    CUFILE_UDEV=1 bench/gpu/python.py [--first] [FILE] [SIZE_GIB] [ROUNDS]

--first      load_file of either library alone, in the lines that bench/gpu/first-byte makes a table of
BUILD        the folder with strait and libstrait.so.0, ../../build by default; nothing is built
CUFILE_UDEV  1: where udev does not run, write the entry about the block device without which NVIDIA's library refuses files
LIMIT        seconds for the whole run, 240 by default: measurements that do not fit any more are left out, and named
ONLY         only the rows whose labels contain one of these, as in ONLY="load_file / safetensors,copy_"
VERBOSE      1: where the first call and the last one of Strait's measurements spent their time, and what the library logged
DEVICE       cuda:0 by default; cpu shows that the script runs, and measures nothing of interest

Each measurement is a process of its own: its first call, after CUDA has started, then the best of ROUNDS later calls. A row is
printed as soon as it is measured; one that fails says why. The tensors are PyTorch's. FILE is made if it is not there, read
into the page cache, and kept. Without FILE it is /var/tmp/strait-python.safetensors, of 4 GiB.
"""
import ctypes
import functools
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get('BUILD') or os.path.join(HERE, '..', '..', 'build'))
PYTHON = os.path.abspath(os.path.join(HERE, '..', '..', 'python'))
DEVICE = os.environ.get('DEVICE', 'cuda:0')
LIMIT = float(os.environ.get('LIMIT', '240'))
START = time.monotonic()
VERBOSE = os.environ.get('VERBOSE') == '1'
SLICED = 'sliced.weight'
ROWS, COLUMNS = slice(4096, 8192), (slice(None), slice(1024, 2048))
PART_BYTES = {'rows': 2 * 4096 * 8192, 'columns': 2 * 32768 * 1024}


def library_path():
    """LD_LIBRARY_PATH without the folder of Strait's libcufile: PyTorch is to find NVIDIA's."""
    kept = [p for p in os.environ.get('LD_LIBRARY_PATH', '').split(':') if p and os.path.realpath(p) != os.path.realpath(BUILD)]
    return ':'.join(kept)


def use_strait():
    """Makes strait importable in this process, with the library of BUILD and the liburing beside it."""
    beside = os.path.join(BUILD, 'liburing.so.2')
    if os.path.exists(beside):
        ctypes.CDLL(beside, ctypes.RTLD_GLOBAL)
    os.environ['STRAIT_LIBRARY'] = os.path.join(BUILD, 'libstrait.so.0')
    sys.path.insert(0, PYTHON)
    import strait
    return strait


def header_of(path):
    with open(path, 'rb') as file:
        size = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(size))
    header.pop('__metadata__', None)
    return header, 8 + size


def likes(path):
    """Shape and type of each tensor of a file."""
    from safetensors import safe_open
    with safe_open(path, framework='pt') as f:
        return {name: (f.get_tensor(name).shape, f.get_tensor(name).dtype) for name in f.keys()}


# Measurements: each returns a function to be timed, which returns tensors by name, and optionally one that returns a remark.

def load_strait(path):
    strait, stats = use_strait(), {}
    return lambda: strait.load_file(path, DEVICE, framework='pt', stats=stats), lambda: 'routes of all calls: ' + ', '.join(
        f'{name} {count / 2**30:.2f} GiB' for name, count in stats['routes'].items())


def load_safetensors(path):
    from safetensors.torch import load_file
    return lambda: load_file(path, device=DEVICE)


def load_cupy(path):
    strait = use_strait()
    return lambda: strait.load_file(path, DEVICE, framework='cupy')


def one_by_one(path, read):
    """Each tensor allocated by PyTorch, then read, on one thread."""
    import torch
    header, data = header_of(path)
    like = likes(path)

    def load():
        result = {}
        for name, info in header.items():
            shape, dtype = like[name]
            result[name] = tensor = torch.empty(shape, dtype=dtype, device=DEVICE)
            if tensor.numel():
                read(tensor, data + info['data_offsets'][0])
        return result
    return load


def cufile_library():
    with open('/proc/self/maps') as maps:
        return ', '.join(sorted({line.split()[-1] for line in maps if 'libcufile' in line})) or 'no libcufile'


def load_gds(path):
    """torch.cuda.gds on NVIDIA's library."""
    import torch
    file = torch.cuda.gds.GdsFile(path, os.O_RDONLY)
    return one_by_one(path, lambda tensor, offset: file.load_storage(tensor.untyped_storage(), offset)), cufile_library


class Descriptor(ctypes.Structure):
    """CUfileDescr_t of a file descriptor."""
    _fields_ = [('type', ctypes.c_int), ('fd', ctypes.c_uint64), ('fs_ops', ctypes.c_void_p)]


class Status(ctypes.Structure):
    """CUfileError_t"""
    _fields_ = [('error', ctypes.c_int), ('cuda', ctypes.c_int)]


def vendor_cufile():
    """NVIDIA's libcufile: that of the CUDA toolkit, or of a Python package."""
    import glob
    found = [os.environ.get('CUFILE_LIBRARY') or ''] + glob.glob('/usr/local/cuda*/lib64/libcufile.so.0')
    found += glob.glob('/usr/local/cuda*/targets/*/lib/libcufile.so.0') + ['/usr/lib/x86_64-linux-gnu/libcufile.so.0']
    for folder in sys.path:
        found += glob.glob(f'{folder}/nvidia/*/lib/libcufile.so.0')
    return next((name for name in found if name and os.path.exists(name)), 'libcufile.so.0')


def load_cufile(path):
    """cuFileRead() on NVIDIA's library, one tensor after the other on one thread."""
    lib = ctypes.CDLL(vendor_cufile())
    lib.cuFileDriverOpen.restype = lib.cuFileHandleRegister.restype = Status
    lib.cuFileRead.restype = ctypes.c_ssize_t
    lib.cuFileRead.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64]
    handle, descriptor = ctypes.c_void_p(), Descriptor(type=1, fd=os.open(path, os.O_RDONLY))
    for status in (lib.cuFileDriverOpen(), lib.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(descriptor))):
        if status.error:
            raise OSError(f'cuFile error {status.error}')

    def read(tensor, offset):
        count = tensor.numel() * tensor.element_size()
        done = lib.cuFileRead(handle, tensor.data_ptr(), count, offset, 0)
        if done != count:
            raise OSError(f'cuFileRead() of {count} bytes returned {done}')
    return one_by_one(path, read), cufile_library


def pattern_copy(path):
    """vLLM, SGLang: open on the CPU, get_tensor, copy into the parameter."""
    import torch
    from safetensors import safe_open
    params = {name: torch.empty(shape, dtype=dtype, device=DEVICE) for name, (shape, dtype) in likes(path).items()}

    def load():
        with safe_open(path, framework='pt') as f:
            for name in f.keys():
                params[name].data.copy_(f.get_tensor(name))
        return params
    return load


def pattern_threads(path):
    """transformers: get_slice on the CPU, [...], then .to(device) on four threads."""
    import concurrent.futures
    from safetensors import safe_open

    def load():
        with safe_open(path, framework='pt', device='cpu') as f, concurrent.futures.ThreadPoolExecutor(4) as pool:
            slices = {name: f.get_slice(name) for name in f.keys()}
            return dict(zip(slices, pool.map(lambda s: s[...].to(DEVICE), slices.values())))
    return load


def pattern_cuda(path):
    """accelerate and direct callers: device="cuda"."""
    from safetensors import safe_open

    def load():
        with safe_open(path, framework='pt', device=DEVICE) as f:
            return {name: f.get_tensor(name) for name in f.keys()}
    return load


def part(index, own):
    def make_part(path):
        if own:
            f = use_strait().safe_open(path, 'pt', DEVICE)
        else:
            from safetensors import safe_open
            f = safe_open(path, framework='pt', device=DEVICE)
        return lambda: {'part': f.get_slice(SLICED)[index]}
    return make_part


def save(kind):
    def make_save(path):
        from safetensors.torch import load_file, save_file
        function = use_strait().save_file if kind == 'strait' else save_file
        tensors, target = load_file(path, device=DEVICE), f'{path}.saved-{kind}'

        def run():
            function(tensors, target)
            return {}
        return run
    return make_save


MEASURES = {'load strait': load_strait, 'load safetensors': load_safetensors, 'load gds': load_gds, 'load cufile': load_cufile,
            'load cupy': load_cupy, 'copy': pattern_copy, 'threads': pattern_threads, 'cuda': pattern_cuda,
            'rows strait': part(ROWS, True), 'rows safetensors': part(ROWS, False),
            'columns strait': part(COLUMNS, True), 'columns safetensors': part(COLUMNS, False),
            'save strait': save('strait'), 'save safetensors': save('safetensors')}
# Label, the two measurements ("run": under strait run), what the ratio of the later calls should be.
TABLE = (('load_file / safetensors', 'load strait', 'load safetensors', 6),
         ('load_file / cuFile, one thread', 'load strait', 'load cufile', 1.5),
         ('load_file / torch.cuda.gds', 'load strait', 'load gds', 1.5),
         ('get_tensor on CPU, copy_', 'copy run', 'copy', 4),
         ('get_slice on CPU, .to, 4 threads', 'threads run', 'threads', 4),
         ('safe_open on cuda', 'cuda run', 'cuda', 4),
         ('get_slice of 1/8, dimension 0', 'rows strait', 'rows safetensors', 4),
         ('get_slice of 1/8, last dimension', 'columns strait', 'columns safetensors', 2),
         ('save_file / safetensors', 'save strait', 'save safetensors', 1.3),
         ('load_file for CuPy / safetensors', 'load cupy', 'load safetensors', 0))


def synchronize():
    import torch
    if DEVICE != 'cpu':
        torch.cuda.synchronize()


def digest(tensors):
    """A number of all bits of all tensors, and of their names and shapes."""
    import torch
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.from_dlpack(tensor)
        data = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
        bits = zlib.crc32(data.numpy().data) if data.device.type == 'cpu' and data.numel() else 0
        for begin in range(0, data.numel() if data.device.type != 'cpu' else 0, 1 << 28):
            block = data[begin:begin + (1 << 28)].to(torch.int64)
            bits += int((block * (torch.arange(begin, begin + block.numel(), device=block.device) % 1000003 + 1)).sum())
        text = f'{name} {tuple(tensor.shape)} {bits}'
        total = (total * 31 + int.from_bytes(text.encode(), 'little')) % (1 << 61)
    return total


class Phases:
    """Where calls spend their time: functions of PyTorch and of the package, and the lines that the library logs."""

    # Module, function, label. Functions that call each other are both counted.
    FUNCTIONS = (('strait._context', 'Context.__init__', 'opening the context'), ('strait._load', 'Source.__init__', 'opening the file'),
                 ('torch', 'empty', 'torch.empty'), ('torch.cuda', 'Stream.synchronize', 'waiting for the stream'),
                 ('strait._memory', 'Segments.find', 'finding the memory'), ('strait._transfer', 'Batch.flush', 'submitting'),
                 ('strait._transfer', 'Batch.finish', 'waiting for transfers'), ('strait._slice', 'Slice._read_rows', 'reading rows'),
                 ('strait._slice', 'Slice._cut', 'cutting on the device'))
    LINES = 24

    def __init__(self):
        os.environ['STRAIT_LOG'] = 'debug'
        self._file, self._stderr, self._spent = tempfile.TemporaryFile(), os.dup(2), {}
        os.dup2(self._file.fileno(), 2)
        for module, name, label in self.FUNCTIONS:
            *owner, attribute = name.split('.')
            owner = functools.reduce(getattr, owner, importlib.import_module(module))
            setattr(owner, attribute, self._counted(getattr(owner, attribute), label))

    def _counted(self, function, label):
        def run(*args, **options):
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                count, spent = self._spent.get(label, (0, 0))
                self._spent[label] = count + 1, spent + time.perf_counter() - start
        return run

    def begin(self):
        self._spent, self._start = {}, time.monotonic()

    def end(self, which):
        """What happened since begin(), in lines."""
        took = time.monotonic() - self._start
        text = ', '.join(f'{label} {1e3 * spent:.2f} ({count})' for label, (count, spent) in sorted(self._spent.items(), key=lambda i: -i[1][1]))
        self._file.seek(0)
        logged = re.findall(r'\[(\d+\.\d+)\] strait: (.*)', self._file.read().decode(errors='replace'))
        logged = [(float(at) - self._start, line) for at, line in logged if 0 <= float(at) - self._start <= took or which == 'first' and float(at) < self._start]
        if len(logged) > self.LINES:
            logged[self.LINES // 2:-self.LINES // 2] = [(logged[self.LINES // 2][0], f'... {len(logged) - self.LINES} lines')]
        return [f'{which} call, {1e3 * took:.2f} ms: {text}'] + [f'  {1e3 * at:9.2f} ms {line}' for at, line in logged]

    def close(self):
        os.dup2(self._stderr, 2)
        self._file.seek(0)
        for line in self._file.read().decode(errors='replace').splitlines():
            if not re.match(r'\[\d+\.\d+\] strait: ', line):
                print(line, file=sys.stderr)


def timed(name, path, rounds):
    """One measurement, in a process of its own."""
    import torch
    torch.zeros(1, device=DEVICE)
    synchronize()
    phases, lines = None, []
    if VERBOSE and ('strait' in name or 'cupy' in name or 'strait.patch' in sys.modules):
        use_strait()
        phases = Phases()
    made = MEASURES[name](path)
    function, remark = made if isinstance(made, tuple) else (made, None)
    calls, result, free = [], None, []
    for k in range(1 + rounds):
        result = None
        if DEVICE != 'cpu':
            free.append(torch.cuda.mem_get_info()[0])
        if phases:
            phases.begin()
        start, cpu = time.perf_counter(), time.process_time()
        result = function()
        synchronize()
        calls.append((time.perf_counter() - start, time.process_time() - cpu))
        if phases and k in (0, rounds):
            lines += phases.end('last' if k else 'first')
    if phases:
        phases.close()
    used = free[0] - torch.cuda.mem_get_info()[0] if free else 0
    first, later = calls[0], min(calls[1:])
    return {'first': first[0], 'later': later[0], 'cores': [first[1] / first[0], later[1] / later[0]], 'used': used, 'remark': remark() if remark else '',
            'digest': digest(result), 'lines': lines}


def sync_memops(addr):
    """The attribute of the allocation at addr that makes copies to it synchronous."""
    value = ctypes.c_uint(7)
    rc = ctypes.CDLL('libcuda.so.1').cuPointerGetAttribute(ctypes.byref(value), 6, ctypes.c_uint64(addr))
    return bool(value.value) if rc == 0 else f'unknown: error {rc}'


def stream_order(path):
    """A long kernel on a tensor, del, a load into the same block: the load must win. And the memory stays as it was."""
    import torch
    strait = use_strait()
    with strait.safe_open(path, 'pt', DEVICE) as f:
        want = f.get_tensor('layer.0').clone()
        same_block = right = 0
        for _ in range(10):
            victim = torch.zeros_like(want)
            place = victim.data_ptr()
            torch.cuda._sleep(100_000_000)
            victim.fill_(1)          # queued behind the sleep
            del victim
            got = f.get_tensor('layer.0')
            same_block += got.data_ptr() == place
            torch.cuda.synchronize()
            right += bool(torch.equal(got.view(torch.uint8), want.view(torch.uint8)))
            del got
        got = f.get_tensor('layer.0')
    return (f'{same_block} of 10 in the same block, {right} of 10 right; SYNC_MEMOPS on PyTorch\'s memory: '
            f'{sync_memops(got.data_ptr())}; segments imported: {strait.stats()["imported_segments"]}')


def make(path, size):
    """Tensors of the kinds a language model has, random bytes."""
    import torch
    header, off, k = {'__metadata__': {'format': 'pt'}}, 0, 0
    shapes = [('BF16', 2, (4096, 4096)), ('BF16', 2, (14336, 4096)), ('F32', 4, (4096,)), ('BF16', 2, (1024, 4096)),
              ('I64', 8, (3, 5)), ('BF16', 2, (4097,)), ('F8_E4M3', 1, (33, 129)), ('BOOL', 1, (7,))]
    if not hasattr(torch, 'float8_e4m3fn'):
        shapes = [shape for shape in shapes if shape[0] != 'F8_E4M3']
    header[SLICED] = {'dtype': 'BF16', 'shape': [32768, 8192], 'data_offsets': [0, 2 * 32768 * 8192]}
    off = 2 * 32768 * 8192
    while off < size:
        dtype, width, shape = shapes[k % len(shapes)]
        count = width
        for d in shape:
            count *= d
        header[f'layer.{k}'] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [off, off + count]}
        off, k = off + count, k + 1
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path + '.tmp', 'wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text)
        while off:
            block = torch.randint(0, 256, (min(off, 1 << 28),), dtype=torch.uint8, device=DEVICE)
            file.write(block.cpu().numpy().data)
            off -= block.numel()
    os.rename(path + '.tmp', path)


def apart(function, *args, limit=60):
    """A function in a process of its own: what it returned, or an Exception with the last line of what went wrong."""
    limit = min(limit, LIMIT - (time.monotonic() - START))
    if limit <= 1:
        return Exception('not measured: no time left (LIMIT)')
    inner, outer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(inner)
            text = json.dumps({'value': function(*args)})
            code = 0
        except BaseException as error:  # the parent says so in the table
            if os.environ.get('TRACE'):
                traceback.print_exc()
            text = json.dumps({'error': f'{type(error).__name__}: {(str(error).splitlines() or [""])[0]}'})
        with os.fdopen(outer, 'w') as pipe:
            pipe.write(text)
        os._exit(code)
    os.close(outer)
    text, end = b'', time.monotonic() + limit
    while True:
        ready, _, _ = select.select([inner], [], [], max(0, end - time.monotonic()))
        block = os.read(inner, 1 << 16) if ready else b''
        if not block:
            break
        text += block
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.close(inner)
    _, status = os.waitpid(child, 0)
    if not ready:
        return Exception(f'did not end within {limit:.0f} s')
    found = json.loads(text) if text else {'error': f'ended with status {status:#x}'}
    return found['value'] if 'value' in found else Exception(found['error'])


def under_strait_run(name, path, rounds, limit=60):
    """The same measurement as an unchanged script of `strait run`."""
    limit = min(limit, LIMIT - (time.monotonic() - START))
    if limit <= 1:
        return Exception('not measured: no time left (LIMIT)')
    env = dict(os.environ, LD_LIBRARY_PATH=f'{BUILD}:{library_path()}', STRAIT_LIBRARY=f'{BUILD}/libstrait.so.0', PYTHONPATH=os.pathsep.join(filter(None, [PYTHON, os.environ.get('PYTHONPATH')])))
    command = [f'{BUILD}/strait', 'run', '--', sys.executable, os.path.abspath(__file__), '--timed', name, path, str(rounds)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, env=env, stdout=out, stderr=err)
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return Exception(f'did not end within {limit:.0f} s')
        for file in (out, err):
            file.seek(0)
        lines, said = (file.read().decode(errors='replace').splitlines() for file in (out, err))
    if child.returncode:
        wrong = [line for line in said if line and not line.startswith('strait run:')]
        return Exception(wrong[-1] if wrong else f'ended with status {child.returncode}')
    result = json.loads(lines[-1])
    result['remark'] = '; '.join(line for line in said if 'safetensors:' in line)
    return result


def measured(results, name, path, rounds):
    """The result of a measurement, made if it was not yet."""
    if name not in results:
        if name.endswith(' run'):
            results[name] = under_strait_run(name[:-4], path, rounds)
        else:
            results[name] = apart(timed, name, path, min(rounds, 2) if name.startswith('save') else rounds)
        found = results[name]
        if isinstance(found, Exception):
            print(f'# {name}: {found}', flush=True)
        elif found['remark']:
            print(f'# {name}: {found["remark"]}', flush=True)
        for line in [] if isinstance(found, Exception) else found['lines']:
            print(f'# {name}: {line}', flush=True)
    return results[name]


def print_row(label, a, b, count, goal):
    if isinstance(a, Exception) or isinstance(b, Exception):
        cells = ['failed' if isinstance(r, Exception) else f'{count / r["first"] / 1e9:6.2f} /{count / r["later"] / 1e9:6.2f}' for r in (a, b)]
        print(f'{label:34s} {cells[0]:>15s} {cells[1]:>15s}', flush=True)
        return
    rate = [f'{count / r["first"] / 1e9:6.2f} /{count / r["later"] / 1e9:6.2f}' for r in (a, b)]
    ratios = (b['first'] / a['first'], b['later'] / a['later'])
    verdict = ' '.join('ok' if ratio >= goal else 'MISSED' for ratio in ratios) if goal else ''
    print(f'{label:34s} {rate[0]:>15s} {rate[1]:>15s} {ratios[0]:5.1f} /{ratios[1]:5.1f}  {">= " + str(goal) if goal else "":6s} {verdict:14s}'
          f'{"bits equal" if a["digest"] == b["digest"] else "BITS DIFFER"}', flush=True)


def prepare(path, size):
    """Makes the file if it is not there, and reads it into the page cache. Returns its length."""
    if not os.path.exists(path):
        failed = apart(make, path, int(float(size) * (1 << 30)))
        if failed is not None:
            sys.exit(f'python.py: cannot make {path}: {failed}')
    with open(path, 'rb') as file:
        while file.read(1 << 26):
            pass
    return os.path.getsize(path)


def first_calls(path='/var/tmp/strait-python.safetensors', size='4', rounds='3'):
    total = prepare(path, size)
    for name, rounds in (('strait', int(rounds)), ('safetensors', 1)):
        found = apart(timed, f'load {name}', path, rounds)
        if isinstance(found, Exception):
            print(f'python.py: {name}: {found}', file=sys.stderr)
            continue
        for which, cores in zip(('first', 'later'), found['cores']):
            print(f'{name} load_file, {which}|{total / found[which] / 1e9:.3f}|GB/s|{cores:.2f}|ok', flush=True)


def main(path='/var/tmp/strait-python.safetensors', size='4', rounds='3'):
    import torch
    import safetensors
    total, rounds = prepare(path, size), int(rounds)
    if os.environ.get('CUFILE_UDEV') == '1':
        subprocess.run([os.path.join(HERE, 'udev-entry'), path], check=False)
    print(f'{path}, {total / 2**30:.2f} GiB cached; PyTorch {torch.__version__}, safetensors {getattr(safetensors, "__version__", "unknown")}; '
          f'GB/s, first call / best of {rounds} later; verdict first, later')
    print(f'{"":34s} {"Strait":>15s} {"other":>15s} {"ratio":>13s}  goal', flush=True)
    results, only = {}, [part for part in os.environ.get('ONLY', '').split(',') if part]
    for label, ours, theirs, goal in TABLE:
        if only and not any(part in label for part in only):
            continue
        count = PART_BYTES.get(ours.split()[0], total)
        print_row(label, measured(results, ours, path, rounds), measured(results, theirs, path, rounds), count, goal)
        if label == TABLE[0][0] and not isinstance(results[ours], Exception):
            rate = total / results[ours]['later'] / 1e9
            print(f'{"load_file, cached":34s} {rate:6.2f} GB/s, goal >= 48.5: {"ok" if rate >= 48.5 else "MISSED"}; device memory in use after '
                  f'the last call {results[ours]["used"] / 2**30:.2f} GiB more than before the first, safetensors '
                  f'{results[theirs]["used"] / 2**30 if not isinstance(results[theirs], Exception) else 0:.2f} GiB', flush=True)
    saved = [f'{path}.saved-{kind}' for kind in ('strait', 'safetensors')]
    if all(os.path.exists(name) for name in saved):
        same = subprocess.run(['cmp', '-s', *saved]).returncode == 0
        print(f'the saved files are {"the same" if same else "different"}', flush=True)
    for name in saved:
        if os.path.exists(name):
            os.unlink(name)
    if DEVICE != 'cpu' and not only:
        print('stream order:', apart(stream_order, path))
    print(f'{time.monotonic() - START:.0f} s in all')


if sys.argv[1:2] == ['--timed']:
    print(json.dumps(timed(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
elif os.environ.get('LD_LIBRARY_PATH', '') != library_path():
    os.environ['LD_LIBRARY_PATH'] = library_path()
    os.execv(sys.executable, [sys.executable, *sys.argv])
elif sys.argv[1:2] == ['--first']:
    first_calls(*sys.argv[2:])
else:
    main(*sys.argv[1:])
