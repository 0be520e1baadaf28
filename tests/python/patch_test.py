#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that use safetensors, unchanged: strait.patch, `strait run`, vLLM's plugin. TAP.

The real safetensors where it is installed, else the stand-in of fake/. In place of a GPU the CPU is the device that is served.
"""
import importlib.util
import os
import subprocess
import sys
import types

from common import BUILD, SOURCE, Skip, expect, folder, main, strait, test, write

HERE = os.path.dirname(os.path.abspath(__file__))
REAL = importlib.util.find_spec('safetensors') is not None
if not REAL:
    sys.path.insert(0, f'{HERE}/fake')
HAVE_TORCH = importlib.util.find_spec('torch') is not None
state = {}


def torch():
    """PyTorch with a patched safetensors, and the CPU served."""
    if not HAVE_TORCH:
        raise Skip('PyTorch is not installed: package python3-torch')
    if not state:
        import strait.patch
        from strait import _filetensor
        expect('torch' not in sys.modules and 'safetensors' not in sys.modules, 'it imports neither')
        import safetensors
        import torch as found
        _filetensor.TARGETS.add('cpu')
        state.update(torch=found, safetensors=safetensors, kind=_filetensor.tensor_class(), patch=strait.patch)
    return state['torch']


def stored(path):
    """A file with tensors of PyTorch, and what is in it."""
    t = torch()
    tensors = {'big': t.arange(256 * 1024, dtype=t.float32).reshape(512, 512), 'half': t.randn(300, 400).to(t.bfloat16),
               'small': t.arange(5), 'cube': t.randn(32, 64, 64), 'none': t.empty(0, 3)}
    strait.save_file(tensors, path, {'format': 'pt'})
    return tensors


def served():
    """Tensors that Strait has read so far."""
    return state['patch'].counts.tensors


def is_known(tensor):
    return type(tensor) is state['kind']


class Serves:
    """A block in which so many tensors are read by Strait."""

    def __init__(self, number):
        self._number = number

    def __enter__(self):
        self._before = served()

    def __exit__(self, kind, *exc):
        if kind is None:
            expect(served() - self._before == self._number, f'{served() - self._before} tensors, not {self._number}: {state["patch"].summary()}')


@test
def a_tensor_of_the_cpu_knows_its_bytes():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['safetensors'].safe_open(f'{path}/m', framework='pt') as f:
            expect(isinstance(f, state['safetensors'].safe_open), 'isinstance')
            expect(f.keys() == sorted(want) and set(f.offset_keys()) == set(want) and f.metadata() == {'format': 'pt'}, f.keys())
            got = {name: f.get_tensor(name) for name in f.keys()}
        expect({name: is_known(x) for name, x in got.items()} == {'big': True, 'half': True, 'cube': True, 'small': False, 'none': False}, got)
        for name, x in want.items():
            expect(isinstance(got[name], t.Tensor) and t.equal(got[name], x) and got[name].dtype == x.dtype, name)
            expect(got[name].device.type == 'cpu' and got[name].shape == x.shape, name)
        with Serves(3):
            for name in ('big', 'half', 'cube'):
                moved = got[name].to('cpu')
                expect(type(moved) is t.Tensor and t.equal(moved, want[name]), name)


@test
def views_know_theirs():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')['cube']
        with state['safetensors'].safe_open(f'{path}/m', framework='pt') as f:
            x = f.get_tensor('cube')
        views = {'row': lambda x: x[3], 'rows': lambda x: x[4:9], 'narrow': lambda x: x.narrow(0, 2, 5), 'view': lambda x: x.view(64, -1),
                 'flat': lambda x: x.flatten()[100:5000], 'reshape': lambda x: x.reshape(-1, 32)[7:], 'columns': lambda x: x[:, 5:9],
                 'last': lambda x: x[..., 3:5], 'turned': lambda x: x.transpose(0, 2), 'step': lambda x: x[::3, ::2], 't': lambda x: x[1].t(),
                 'chunk': lambda x: x.chunk(4)[2], 'split': lambda x: t.split(x, 8, 1)[3], 'unbound': lambda x: x.unbind(0)[6],
                 'twice': lambda x: x[2:10][1:3].view(-1)[9:99], 'detach': lambda x: x.detach(), 'data': lambda x: x.data,
                 'contiguous': lambda x: x.contiguous(), 'more': lambda x: x.unsqueeze(0).squeeze(0)}
        for name, view in views.items():
            part = view(x)
            expect(is_known(part), f'{name} is known')
            with Serves(1):
                moved = part.to(t.device('cpu'))
            expect(type(moved) is t.Tensor and t.equal(moved, view(want)) and moved.is_contiguous(), name)
        for name, plain in {'sum': x + 1, 'clone': x.clone(), 'columns': x[:, 5:9].contiguous(), 'cat': t.cat([x, x]), 'picked': x[[1, 2]],
                            'half': x.half(), 'float64': x.to(t.float64)}.items():
            expect(type(plain) is t.Tensor, f'{name} is plain')


@test
def copies_into_a_parameter_are_read():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['safetensors'].safe_open(f'{path}/m', framework='pt') as f:
            x, half = f.get_tensor('big'), f.get_tensor('half')
        param = t.nn.Parameter(t.zeros(512, 512))
        with Serves(1):
            expect(param.data.copy_(x) is not None and t.equal(param.data, want['big']), 'param.data.copy_')
        with t.no_grad(), Serves(1):
            t.nn.Parameter(t.zeros(512, 512)).copy_(x)
        shard = t.zeros(128, 512)
        with Serves(1):
            shard.copy_(x.narrow(0, 128, 128))
        expect(t.equal(shard, want['big'][128:256]), 'a shard of rows')
        shard = t.zeros(512, 512)
        with Serves(3):
            shard[:, :128].copy_(x[:, 128:256])   # to and from columns
            shard[128:256, 256:] = x[:128, 256:]
            shard[0] = x[9]
        expect(t.equal(shard[1:, :128], want['big'][1:, 128:256]) and t.equal(shard[128:256, 256:], want['big'][:128, 256:]), 'columns')
        expect(t.equal(shard[0], want['big'][9]), 'a row')
        wide = t.zeros(300, 400)
        with Serves(1):
            wide.copy_(half)
        expect(t.equal(wide, want['half'].float()), 'another type')
        with Serves(1):
            expect(t.equal(half.to('cpu', t.float32), want['half'].float()), 'to another type')
        with Serves(1):
            expect(t.equal(half.to(wide), want['half'].float()), 'to that of another tensor')
        try:
            t.nn.Parameter(t.zeros(512, 512)).copy_(x)
            raise AssertionError('a leaf that requires grad is changed')
        except RuntimeError:
            pass


@test
def changed_bytes_are_not_read_from_the_file():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')['big']

        def fresh():
            with state['safetensors'].safe_open(f'{path}/m', framework='pt') as f:
                return f.get_tensor('big')

        def fill(capsule):
            t.utils.dlpack.from_dlpack(capsule).fill_(5)

        changes = {'add_': lambda x: x.add_(1), '+=': lambda x: x.__iadd__(1), '[]=': lambda x: x.__setitem__(0, 7), 'data': lambda x: x.data.add_(1),
                   'view': lambda x: x[3:].mul_(2), 'detached': lambda x: x.detach()[0].fill_(9), 'copy_': lambda x: x.copy_(t.zeros(512, 512)),
                   'out': lambda x: t.add(want, 1, out=x), 'numpy': lambda x: x.numpy().__setitem__(0, 7),
                   'function': lambda x: t.nn.init.zeros_(x), 'relu_': lambda x: t.relu_(x),
                   'dlpack': lambda x: t.from_dlpack(x).fill_(3), 'capsule': lambda x: fill(t.utils.dlpack.to_dlpack(x)),
                   'capsule of torch': lambda x: fill(t.to_dlpack(x))}
        for name, change in changes.items():
            x = fresh()
            part = x[:10]
            change(x)
            with Serves(0):
                moved, moved_part = x.to('cpu', copy=True), part.to('cpu', copy=True)
            expect(t.equal(moved, x) and t.equal(moved_part, x[:10]), name)
            expect(name == 'relu_' or not t.equal(moved, want), name)
        expect(t.equal(fresh(), want), 'the file is as it was')


@test
def it_is_an_ordinary_tensor_everywhere_else():
    import copy
    import io
    import pickle
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')['big']
        with state['safetensors'].safe_open(f'{path}/m', framework='pt') as f:
            x = f.get_tensor('big')
        expect(t.equal(copy.deepcopy(x), want) and t.equal(pickle.loads(pickle.dumps(x)), want), 'copies')
        buffer = io.BytesIO()
        t.save(x, buffer)
        buffer.seek(0)
        expect(t.equal(t.load(buffer), want), 'saved and loaded')
        expect(type(t.nn.Parameter(x, requires_grad=False)) is t.nn.Parameter, 'a parameter is an ordinary one')
        expect(t.equal(x @ x, want @ want) and (x == want).all() and float(x[3, 4]) == float(want[3, 4]), 'arithmetic')
        expect('tensor(' in repr(x) and len(x) == 512 and x.is_contiguous() and x.stride() == (512, 1), 'questions')
        layer = t.nn.Linear(512, 512, bias=False)
        with Serves(1):
            layer.load_state_dict({'weight': x})
        expect(t.equal(layer.weight.data, want), 'load_state_dict')


@test
def slices_of_the_cpu():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')['cube']
        with state['safetensors'].safe_open(f'{path}/m', framework='pt', device='cpu') as f:
            part = f.get_slice('cube')
            expect(part.get_shape() == [32, 64, 64] and part.get_dtype() == 'F32', 'what it is')
            for index in (slice(None), slice(3, 9), (slice(None), slice(8, 16)), Ellipsis, 5):
                with Serves(1):
                    expect(t.equal(part[index].to('cpu'), want[index]), index)
            expect(t.equal(part[[1, 2]], want[[1, 2]]) and not is_known(part[[1, 2]]), 'a list')


@test
def slices_are_not_read_twice():
    """The address of a part is not found out by reading the whole tensor."""
    t = torch()
    original = state['safetensors']._strait_original
    if REAL:
        raise Skip('the real safetensors cannot be watched')
    with folder() as path:
        want, calls = stored(f'{path}/m')['cube'], []
        view = original._view
        original._view = lambda self, name: calls.append(name) or view(self, name)
        try:
            for backend in ('mmap', 'pread'):
                with state['safetensors'].safe_open(f'{path}/m', framework='pt', backend=backend) as f:
                    part = f.get_slice('cube')
                    for index, known in ((slice(None), True), (slice(3, 9), True), (4, True), ((2, slice(3, 9)), True), ((slice(2, 3), 5), True),
                                         ((slice(None), slice(8, 16)), backend == 'mmap'), (slice(0, 9, 2), backend == 'mmap'),
                                         ((None, 3), True), ([1, 2], False), (t.tensor([True] + [False] * 31), False)):
                        calls.clear()
                        got = part[index]
                        expect(len(calls) == 1 and is_known(got) == known, (backend, index, calls, type(got)))
                        with Serves(int(known)):
                            expect(t.equal(got.to('cpu'), want[index]), (backend, index))
        finally:
            original._view = view


@test
def a_device_without_a_number_is_the_first():
    """As of safetensors, whatever PyTorch's current device is."""
    from strait import _patched
    expect([_patched._cuda_name(device) for device in ('cuda', 'cuda:0', 'cuda:3', 2)] == ['cuda:0', 'cuda:0', 'cuda:3', 'cuda:2'], 'names')


@test
def files_on_a_device_that_is_served():
    """As device="cuda": here the CPU stands in for it, through the classes directly."""
    t = torch()
    from strait import _patched
    with folder() as path:
        want = stored(f'{path}/m')
        original, name, kind = state['safetensors']._strait_original, _patched._cuda_name, _patched._kind
        _patched._kind, _patched._cuda_name = lambda device: 'cuda', lambda device: 'cpu'
        try:
            if REAL:
                raise Skip('the real safetensors needs a GPU for this')
            with _patched.make(original)(f'{path}/m', 'pt', device='cuda') as f:
                with Serves(5):
                    got = f.get_tensors()
                expect(list(got) == f.offset_keys() and all(t.equal(got[k], want[k]) and type(got[k]) is t.Tensor for k in want), 'all')
                with Serves(1):
                    expect(t.equal(f.get_tensor('half'), want['half']), 'one')
                for index in (slice(3, 9), (slice(None), slice(8, 16)), 5, (Ellipsis, 3)):
                    with Serves(1):
                        expect(t.equal(f.get_slice('cube')[index], want['cube'][index]), index)
                with Serves(0):
                    expect(t.equal(f.get_slice('cube')[[1, 2]], want['cube'][[1, 2]]), 'left to the original')
            import safetensors.torch
            with Serves(5):
                got = safetensors.torch.load_file(f'{path}/m', device='cuda')
            expect(all(t.equal(got[k], want[k]) for k in want), 'load_file')
        finally:
            _patched._cuda_name, _patched._kind = name, kind


@test
def errors_are_the_originals():
    torch()
    s = state['safetensors']
    with folder() as path:
        stored(f'{path}/m')
        with open(f'{path}/bad', 'wb') as file:
            file.write(b'\x08\0\0\0\0\0\0\0nonsense')

        def raised(function, *args, **options):
            try:
                function(*args, **options)
            except Exception as error:
                return type(error), str(error)
            return None

        for args, options in (((f'{path}/none', 'pt'), {}), ((f'{path}/bad', 'pt'), {}), ((f'{path}/m', 'pt'), {'backend': 'carrier pigeon'}),
                              ((f'{path}/m', 'mxnet'), {})):
            want = raised(s._strait_original, *args, **options)
            expect(want and raised(s.safe_open, *args, **options) == want, (args, want))
        f, o = s.safe_open(f'{path}/m', 'pt'), s._strait_original(f'{path}/m', 'pt')
        for name in ('get_tensor', 'get_slice'):
            expect(raised(getattr(f, name), 'x') == raised(getattr(o, name), 'x') is not None, name)
        f.__exit__(None, None, None)
        o.__exit__(None, None, None)
        for name, args in (('keys', ()), ('get_tensor', ('big',)), ('get_slice', ('big',)), ('metadata', ())):
            expect(raised(getattr(f, name), *args) == raised(getattr(o, name), *args) is not None, name)
        with s.safe_open(f'{path}/m', framework='np') as f:
            expect(not is_known(f.get_tensor('small')), 'NumPy is left to the original')
        expect('not for PyTorch' in state['patch'].summary(), state['patch'].summary())


@test
def the_hook_imports_nothing():
    code = 'import sys, strait.patch; print([m for m in ("torch", "numpy", "safetensors") if m in sys.modules])\n' \
           'import safetensors; print(hasattr(safetensors, "_strait_original"), safetensors.__spec__.loader.__class__.__name__)\n' \
           'import strait.patch, importlib; importlib.reload(strait.patch)\n' \
           'print(sum(type(f).__module__ == "strait.patch" for f in sys.meta_path), safetensors.safe_open.__name__)'
    env = dict(os.environ, PYTHONPATH=f'{SOURCE}/python:{HERE}/fake')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, env=env)
    expect(done.stdout.decode().splitlines()[:2] == ['[]', 'True SourceFileLoader'], done)


SCRIPT = '''
import sys
import safetensors
print(hasattr(safetensors, '_strait_original'), sys.modules['sitecustomize'].__file__ if 'sitecustomize' in sys.modules else None)
'''


@test
def strait_run_patches_python():
    with folder() as path:
        with open(f'{path}/script.py', 'w') as file:
            file.write(SCRIPT)
        with open(f'{path}/sitecustomize.py', 'w') as file:
            file.write('chained = True\n')
        env = dict(os.environ, PYTHONPATH=f'{path}:{HERE}/fake')
        env.pop('STRAIT_PATCH', None)

        def run(*options, **more):
            done = subprocess.run([f'{BUILD}/strait', 'run', *options, '--', sys.executable, f'{path}/script.py'], capture_output=True,
                                  env={**env, **more})
            expect(done.returncode == 0, done)
            return done.stdout.decode().split()

        expect(run() == ['True', f'{path}/sitecustomize.py'], run())
        expect(run('--no-python')[0] == 'False' and run(STRAIT_PATCH='0')[0] == 'False', 'not when it is not wanted')


@test
def the_summary_says_what_was_left():
    if not HAVE_TORCH:
        raise Skip('PyTorch is not installed: package python3-torch')
    with folder() as path:
        write(f'{path}/m', {'a': ('F32', [100, 1000], bytes(400000))})
        code = 'from strait import _filetensor; _filetensor.TARGETS.add("cpu")\n' \
               f'import safetensors; f = safetensors.safe_open({path + "/m"!r}, "pt"); x = f.get_tensor("a"); x.to("cpu"); x.add_(1); x.to("cpu")'
        env = dict(os.environ, PYTHONPATH=f'{SOURCE}/python:{HERE}/fake')
        done = subprocess.run([f'{BUILD}/strait', 'run', '--', sys.executable, '-c', code], capture_output=True, env=env)
        expect(done.returncode == 0 and b'safetensors: 1 tensors, 390.6 KiB read by Strait (host 390.6 KiB); 1 left to the original: '
               b'1 its bytes were changed in memory' in done.stderr, done)
        done = subprocess.run([f'{BUILD}/strait', 'run', '--quiet', '--', sys.executable, '-c', code], capture_output=True, env=env)
        expect(done.returncode == 0 and done.stderr == b'', done)


@test
def vllm_finds_its_loader():
    t = torch()
    sys.path.insert(0, f'{HERE}/fake')
    from strait.vllm import register
    from vllm.model_executor import model_loader
    register()
    with folder() as path:
        want = {}
        for k in range(3):
            part = {f'layer.{k}.{i}': t.randn(10, 10) for i in range(4)}
            strait.save_file(part, f'{path}/model-{k}.safetensors')
            want.update(part)
        config = types.SimpleNamespace(load_format='strait')
        loader = model_loader.LOADERS['strait'](config)
        expect(config.load_format == 'strait', 'the configuration is not changed')
        got = dict(loader.get_all_weights(path))
        expect(set(got) == {f'model.{name}' for name in want} and all(t.equal(got[f'model.{k}'], x) for k, x in want.items()), list(got))
        expect(model_loader.default_loader.safetensors_weights_iterator.__module__.startswith('vllm'), 'the function of vLLM is back')


main()
