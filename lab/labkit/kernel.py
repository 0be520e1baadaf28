# SPDX-License-Identifier: MIT
"""Kernels of the cache, and the dependencies of their modules."""
import functools
import glob
import lzma
import os
import re
import subprocess
import sys
import threading

LAB = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ('stock', 'debug', '6.12', '6.1')


class Unavailable(Exception):
    """The lab cannot run here, or not with these options: a reason to skip."""


class Failed(Exception):
    """Something in the tree is wrong: a failure."""


def cache_dir():
    home = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.environ.get('HOME') or '/root', '.cache')
    return os.environ.get('STRAIT_LAB_CACHE') or os.path.join(home, 'strait', 'lab')


def script(name, *args):
    """Run one of the lab's scripts. Its stderr is printed; the last line is the reason where it ends with status 77."""
    process = subprocess.Popen([os.path.join(LAB, name), *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, errors='replace')
    said = []
    for line in process.stderr:
        said.append(line.rstrip('\n'))
        print(f'# {said[-1]}', file=sys.stderr, flush=True)
    status = process.wait()
    if status == 77:
        raise Unavailable(re.sub(r'^[\w-]+: ', '', said[-1]) if said else f'{name} cannot run here')
    if status:
        raise Failed('\n'.join(said[-40:] or [f'{name} ended with status {status}']))


class Module:
    def __init__(self, path):
        self.path = path
        self.name = re.sub(r'\.ko(\.xz)?$', '', os.path.basename(path)).replace('-', '_')

    @functools.cached_property
    def data(self):
        with open(self.path, 'rb') as file:
            data = file.read()
        return lzma.decompress(data) if self.path.endswith('.xz') else data

    def info(self, key):
        return [value.decode() for value in re.findall(rb'\0' + key.encode() + rb'=([^\0]*)\0', self.data)]

    @functools.cached_property
    def needs(self):
        names = [name for value in self.info('depends') for name in value.split(',') if name]
        for value in self.info('softdep'):
            match = re.search(r'\bpre: *(.*?)(?: *post:|$)', value)
            names += match.group(1).split() if match else []
        return [name.replace('-', '_') for name in names]


class Kernel:
    def __init__(self, name):
        self.name, self.built, self.lock = name, {}, threading.Lock()
        if name == 'debug':
            script('build-kernel')
        else:
            script('fetch-kernel', name)
        self.dir = os.path.realpath(os.path.join(cache_dir(), 'kernels', name))
        self.image = os.path.join(self.dir, 'vmlinuz')
        with open(os.path.join(self.dir, 'release')) as file:
            self.release = file.read().strip()
        with open(os.path.join(self.dir, 'config')) as file:
            self.config = set(re.findall(r'^(CONFIG_\w+)=', file.read(), re.M))

    def has(self, option):
        return 'CONFIG_' + option in self.config

    @functools.cached_property
    def modules(self):
        found = {}
        for path in glob.glob(os.path.join(self.dir, 'modules', '**', '*.ko*'), recursive=True):
            module = Module(path)
            found[module.name] = module
        return found

    @property
    def built_in(self):
        """The modules that are part of the kernel, a path in each line."""
        with open(os.path.join(self.dir, 'modules', 'modules.builtin')) as file:
            return file.read()

    def build(self, folder):
        """Build the modules of the tree for this kernel, in @folder."""
        with self.lock:
            if folder not in self.built:
                script('build-modules', self.name, folder)
                self.built[folder] = [Module(path) for path in sorted(glob.glob(os.path.join(folder, '*.ko')))]
            return self.built[folder]

    def check(self, modules):
        """Raise Failed unless every module exists and is built for this kernel."""
        for module in modules:
            if not os.path.isfile(module.path):
                raise Failed(f'there is no module {module.path}')
            release = ' '.join(module.info('vermagic')).split(' ')[0]
            if release != self.release:
                raise Failed(f'{module.path} is for kernel {release or "unknown"}: this is {self.release}')

    def closure(self, names, own=()):
        """The modules @names with their dependencies, each after those it depends on. Built-in ones are left out."""
        known = {**self.modules, **{module.name: module for module in own}}
        order = []

        def visit(name):
            module = known.get(name)
            if module is None or module in order:
                return
            for need in module.needs:
                visit(need)
            order.append(module)
        for name in names:
            visit(name)
        return order
