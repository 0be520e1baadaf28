# SPDX-License-Identifier: MIT
"""The root file system of the guest, as the cpio archive that the kernel unpacks."""
import functools
import os
import re
import shutil
import stat
import subprocess

LIBRARIES = '/lib/x86_64-linux-gnu'


@functools.lru_cache(None)
def libraries(path):
    """The libraries that the dynamic loader would load for a program: (path, name)."""
    with open(path, 'rb') as file:
        if file.read(4) != b'\x7fELF':
            return []
    result = subprocess.run(['ldd', path], capture_output=True, text=True, check=False)
    found = []
    for line in result.stdout.splitlines():
        match = re.match(r'\s*(?:(\S+) => )?(/\S+) \(0x', line)
        if match:
            found.append((match.group(2), os.path.basename(match.group(1) or match.group(2))))
        elif '=> not found' in line:
            raise FileNotFoundError(f'{path} needs {line.split()[0]}')
    return found


def tool(name):
    """The path of a program of this machine, or None. Folders that only root has in PATH are searched too."""
    return shutil.which(name, path='/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')


class Initramfs:
    def __init__(self):
        self.entries = {}
        self.node('/dev/console', stat.S_IFCHR | 0o600, 5, 1)
        self.node('/dev/null', stat.S_IFCHR | 0o666, 1, 3)
        for folder in ('/proc', '/sys', '/tmp', '/root', '/mnt', '/run', '/etc'):
            self.folder(folder)

    def put(self, path, mode, data=b'', rdev=(0, 0)):
        path = os.path.normpath(path).lstrip('/')
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.put(parent, stat.S_IFDIR | 0o755)
        self.entries[path] = (mode, data, rdev)

    def folder(self, path):
        self.put(path, stat.S_IFDIR | 0o755)

    def node(self, path, mode, major, minor):
        self.put(path, mode, rdev=(major, minor))

    def link(self, path, target):
        self.put(path, stat.S_IFLNK | 0o777, target.encode())

    def text(self, path, text, mode=0o644):
        self.put(path, stat.S_IFREG | mode, text.encode() if isinstance(text, str) else text)

    def file(self, source, path, mode=None):
        with open(source, 'rb') as file:
            data = file.read()
        self.put(path, stat.S_IFREG | (mode or stat.S_IMODE(os.stat(source).st_mode)), data)

    def program(self, source, path):
        """Copy a program and the libraries it needs. Libraries go to the loader's default folders."""
        self.file(source, path, 0o755)
        for where, name in libraries(source):
            to = '/lib64/' + name if name.startswith('ld-linux') else f'{LIBRARIES}/{name}'
            if to.lstrip('/') not in self.entries:
                self.file(where, to, 0o755)

    def tool(self, name):
        """Copy a program of this machine into the guest, if this machine has it."""
        path = tool(name)
        if path:
            self.program(path, '/usr/bin/' + name)
        return path

    def busybox(self):
        path = tool('busybox')
        self.file(path, '/bin/busybox', 0o755)
        applets = subprocess.run([path, '--list'], capture_output=True, text=True, check=True).stdout.split()
        for applet in set(applets) - {'busybox'}:
            self.link('/bin/' + applet, 'busybox')
        self.link('/sbin', 'bin')

    def modules(self, release, modules, built_in=''):
        """Kernel modules, with the tables that modprobe reads. @built_in: those that the kernel contains, a path in each line."""
        folder = f'/lib/modules/{release}'
        lines, aliases = [], []
        names = {module.name for module in modules}
        for module in modules:
            self.text(f'{folder}/{module.name}.ko', module.data)
            needs = []
            todo = list(module.needs)
            known = {m.name: m for m in modules}
            while todo:
                need = todo.pop(0)
                if need in names and need not in needs:
                    needs.append(need)
                    todo += known[need].needs
            lines.append(f'{module.name}.ko:' + ''.join(f' {need}.ko' for need in needs))
            # Tests bind drivers themselves: without these aliases the kernel does not load one when a device appears.
            aliases += [f'alias {alias} {module.name}' for alias in module.info('alias')
                        if not alias.startswith(('pci:', 'virtio:'))]
        self.text(f'{folder}/modules.alias', '\n'.join(aliases) + '\n')
        self.text(f'{folder}/modules.dep', '\n'.join(lines) + '\n')
        self.text(f'{folder}/modules.builtin', built_in)

    def write(self, path):
        with open(path, 'wb') as out:
            for inode, (name, (mode, data, rdev)) in enumerate(self.entries.items(), 1):
                self.entry(out, inode, name, mode, data, rdev)
            self.entry(out, 0, 'TRAILER!!!', 0, b'', (0, 0))
            out.write(bytes(-out.tell() % 512))

    @staticmethod
    def entry(out, inode, name, mode, data, rdev):
        encoded = name.encode() + b'\0'
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(encoded), 0)
        head = b'070701' + b''.join(b'%08x' % field for field in fields) + encoded
        out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))
