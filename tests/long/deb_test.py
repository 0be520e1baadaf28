#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Debian packages: built, checked by lintian, installed, used and removed in a fresh Debian tree. TAP."""
import atexit
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'tree'))

import tap  # noqa: E402

WORK = tempfile.mkdtemp(prefix='strait-deb.', dir='/var/tmp')
TREE = os.path.join(WORK, 'tree')
PACKAGES = ['libcufile-strait', 'libstrait-dev', 'libstrait0', 'python3-strait', 'strait', 'strait-dkms']
# The last three: what the packages with a kernel's headers depend on, and what DKMS signs with.
NEEDED = 'python3,liburing2,gcc,libc6-dev,pkg-config,dkms,zsh,libelf1,pahole,openssl'
# A kernel that is too old for the module.
OLD = '6.1.0-1-amd64'
MIRROR = 'lab=$1; self=deb_test; . "$1/lib.sh"; mirror'
state = {'version': re.search(r"version: '([^']+)'", tap.read('meson.build')).group(1)}
USE = '''
#include <stdio.h>
#include <strait/strait.h>
int main(void) { puts(strait_version()); return 0; }
'''


@atexit.register
def clean():
    subprocess.run(['umount', f'{TREE}/proc'], stderr=subprocess.DEVNULL)
    shutil.rmtree(WORK, ignore_errors=True)


def debs():
    return sorted(path for path in glob.glob(f'{WORK}/dist/*.deb') if '-dbgsym_' not in path)


def inside(*command):
    return tap.run('chroot', TREE, '/usr/bin/env', '-i', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/', 'LC_ALL=C',
                   'DEBIAN_FRONTEND=noninteractive', *command)


def they_are_built():
    status, output = tap.run(f'{tap.SOURCE}/packaging/build-deb', f'{WORK}/dist')
    if status == 77:
        raise tap.Skip(output.strip().splitlines()[-1])
    names = sorted(os.path.basename(path).partition('_')[0] for path in debs())
    return [output] if status else [] if names == PACKAGES else [f'packages: {names}']


def lintian_finds_no_errors():
    if not shutil.which('lintian'):
        raise tap.Skip('lintian is not installed')
    status, output = tap.run('lintian', '--allow-root', '--fail-on', 'error', '--suppress-tags',
                             'bogus-mail-host,bogus-mail-host-in-debian-changelog', *debs())
    return [output] if status else []


def files_of(path):
    _, output = tap.run('dpkg-deb', '--contents', path)
    return {line.split()[5].lstrip('.') for line in output.splitlines() if not line.startswith('d')}


def layout_is_that_of_meson_install():
    """What Debian's rules move: the Python package, and udev's rules. What they add: documents, and sources for DKMS."""
    build = glob.glob(f'{tap.SOURCE}/build-deb/strait-*/obj-*')[0]
    status, output = tap.run('/usr/bin/meson', 'introspect', '--installed', build)
    if status:
        return [output]
    wanted = set()
    for source, path in json.loads(output).items():
        parts = [os.path.join(path, os.path.relpath(os.path.join(folder, name), source)) for folder, _, names in os.walk(source)
                 for name in names if not name.endswith('.pyc')] if os.path.isdir(source) else [path]
        for part in parts:
            part = part.replace('/usr/share/strait/python', '/usr/lib/python3/dist-packages').replace('/usr/lib/udev', '/lib/udev')
            wanted.add(part + ('.gz' if '/share/man/' in part else ''))
    wanted = {name for name in wanted if not name.startswith('/usr/share/strait/')}
    has = set().union(*(files_of(path) for path in debs()))
    more = {name for name in has - wanted if not re.match(r'/usr/share/(doc|lintian)/|/usr/src/strait-|/usr/lib/python3/dist-packages/strait-io.pth', name)}
    links = {name for name in more if re.search(r'/lib(strait|cufile)\.so(\.0)?$', name)}
    return [f'not in a package: {name}' for name in sorted(wanted - has)] + [f'in a package only: {name}' for name in sorted(more - links)]


def programs_are_hardened():
    problems = []
    for path in debs():
        folder = f'{WORK}/files/{os.path.basename(path)}'
        tap.run('dpkg-deb', '-x', path, folder)
        for name in glob.glob(f'{folder}/usr/bin/*') + glob.glob(f'{folder}/usr/lib/*/**/*.so.*', recursive=True):
            status, text = tap.run('readelf', '-W', '-h', '-l', '-d', name)
            for sign in ('DYN (', 'GNU_RELRO', 'NOW'):
                if sign not in text:
                    problems.append(f'{os.path.basename(name)}: no {sign}')
            if re.search(r'GNU_STACK.*RWE', text):
                problems.append(f'{os.path.basename(name)}: its stack is executable')
            if '__stack_chk_fail' not in tap.run('readelf', '-W', '--dyn-syms', name)[1]:
                problems.append(f'{os.path.basename(name)}: no stack protector')
    return problems


def tree_is_made():
    if os.geteuid() or not shutil.which('debootstrap'):
        raise tap.Skip('a fresh tree needs root and the package debootstrap')
    status, mirror = tap.run('sh', '-c', MIRROR, 'sh', f'{tap.SOURCE}/lab')
    if status:
        raise tap.Skip(mirror.strip())
    status, output = tap.run('debootstrap', '--variant=minbase', f'--include={NEEDED}', 'bookworm', TREE, mirror.strip())
    if status:
        return [output[-2000:]]
    # The command finds its libraries by its own path, which /proc tells.
    status, output = tap.run('mount', '-t', 'proc', 'proc', f'{TREE}/proc')
    return [output] if status else []


def needs_tree():
    if not os.path.exists(f'{TREE}/usr/bin/dpkg'):
        raise tap.Skip('there is no fresh tree')


def listing():
    status, output = inside('find', '/usr', '/etc', '/lib/udev', '-xdev', '-not', '-name', '*.pyc', '-not', '-name', '__pycache__')
    return set(output.splitlines())


def a_kernel_is_there():
    """The headers of a kernel for which the module is built, and of one that is too old."""
    needs_tree()
    status, output = tap.run(f'{tap.SOURCE}/lab/fetch-kernel', '6.12')
    if status == 77:
        raise tap.Skip(output.strip().splitlines()[-1])
    status, folder = tap.run('sh', '-c', 'lab=$1; . "$1/lib.sh"; cached_kernel 6.12; echo "$kernel"', 'sh', f'{tap.SOURCE}/lab')
    kernel = folder.strip().splitlines()[-1]
    with open(f'{kernel}/release') as file:
        release = file.read().strip()
    status, output = tap.run('cp', '-a', f'{kernel}/root/usr', TREE)
    if status:
        return [output]
    headers = f'/usr/src/linux-headers-{release}'
    with open(f'{TREE}{headers}/Makefile', 'r+') as file:
        text = file.read().replace(f'{os.path.realpath(kernel)}/root', '')
        file.seek(0)
        file.truncate()
        file.write(text)
    for name, target in ((release, headers), (OLD, '/usr/src/none')):
        os.makedirs(f'{TREE}/lib/modules/{name}')
        os.symlink(target, f'{TREE}/lib/modules/{name}/build')
    os.makedirs(f'{TREE}/usr/src/none/include')
    state['kernel'] = release
    return []


def they_are_installed():
    needs_tree()
    state['before'] = listing()
    os.makedirs(f'{TREE}/debs')
    for path in debs():
        shutil.copy(path, f'{TREE}/debs')
    status, output = inside('dpkg', '--install', *[f'/debs/{os.path.basename(path)}' for path in debs()])
    state['said'] = output
    return [output] if status else []


def make_log():
    found = glob.glob(f'{TREE}/var/lib/dkms/strait/*/build/make.log')
    return open(found[0], errors='replace').read()[-3000:] if found else 'there is no make.log'


def dkms_builds_the_module():
    needs_tree()
    if 'kernel' not in state:
        raise tap.Skip('there is no kernel in the fresh tree')
    status, output = inside('dkms', 'status', '-m', 'strait')
    problems = [] if re.search(rf'{re.escape(state["kernel"])}, x86_64: installed', output) else [output, state['said'], make_log()]
    if OLD in output:
        problems.append(f'built for {OLD}: {output}')
    status, text = inside('modinfo', '-k', state['kernel'], 'strait')
    if status or '/updates/dkms/strait.ko' not in text or 'signer' not in text:
        problems.append(text)
    if inside('modinfo', '-k', state['kernel'], 'strait_nvp2p')[0] == 0:
        problems.append('the bridge was built without a driver of NVIDIA\'s')
    return problems


def dkms_builds_the_bridge():
    """The lab's GPU driver exports what NVIDIA's open kernel modules do: it stands in for them."""
    needs_tree()
    if 'kernel' not in state:
        raise tap.Skip('there is no kernel in the fresh tree')
    status, output = tap.run(f'{tap.SOURCE}/lab/build-modules', '6.12', f'{tap.BUILD}/lab/modules-6.12')
    if status == 77:
        raise tap.Skip(output.strip().splitlines()[-1])
    folder = f'{TREE}/lib/modules/{state["kernel"]}/updates/dkms'
    os.makedirs(folder, exist_ok=True)
    shutil.copy(f'{tap.BUILD}/lab/modules-6.12/strait_vgpu.ko', f'{folder}/nvidia.ko')
    for verb in ('unbuild', 'install'):
        status, output = inside('dkms', verb, '-m', 'strait', '-v', state['version'], '-k', state['kernel'])
        if status:
            return [output, make_log()]
    status, text = inside('modinfo', '-k', state['kernel'], 'strait_nvp2p')
    problems = [] if status == 0 and re.search(r'depends:.*\bnvidia\b', text) else [text, output]
    os.unlink(f'{folder}/nvidia.ko')
    return problems


def they_work():
    needs_tree()
    problems = []
    with open(f'{TREE}/use.c', 'w') as file:
        file.write(USE)
    for command, text in ((['strait', 'info'], 'emu:0'), (['strait', 'run', '--quiet', '--', 'strait', '--version'], 'strait 0'),
                          (['python3', '-c', 'import strait; print(strait.devices())'], 'emu:0'),
                          (['python3', '-m', 'strait', 'info'], 'emu:0'),
                          (['sh', '-c', 'cc -o /use /use.c $(pkg-config --cflags --libs strait) && /use'], '0.'),
                          (['bash', '-c', '. /usr/share/bash-completion/completions/strait; COMP_WORDS=(strait exp); COMP_CWORD=1; '
                            '_strait; echo "${COMPREPLY[@]}"'], 'explain'),
                          (['zsh', '-f', '-c', 'autoload -Uz compinit; compinit -D -u; print $_comps[strait]; '
                            'autoload +X _strait && print loaded'], '_strait\nloaded'),
                          (['sh', '-c', 'zcat /usr/share/man/man1/strait.1.gz | head -n 3; ls /usr/share/man/man3/strait_read.3.gz'], 'strait_read'),
                          (['sh', '-c', 'ls /usr/lib/*/strait/libcufile.so.0 && ! ldconfig -p | grep cufile'], 'libcufile')):
        status, output = inside(*command)
        if status or text not in output:
            problems.append(f'{command}: {status}: {output}')
    return problems


def they_are_removed():
    needs_tree()
    status, output = inside('dpkg', '--purge', *PACKAGES)
    if status:
        return [output]
    left = {name for name in listing() - state['before'] if 'strait' in name or 'cufile' in name}
    if 'kernel' in state:
        left.update(glob.glob(f'{TREE}/lib/modules/*/updates/dkms/strait*') + glob.glob(f'{TREE}/var/lib/dkms/strait*'))
    return [f'left behind: {name}' for name in sorted(left)]


if __name__ == '__main__':
    sys.exit(tap.main([('they are built', they_are_built),
                       ('lintian finds no errors', lintian_finds_no_errors),
                       ('the layout is that of meson install', layout_is_that_of_meson_install),
                       ('programs are hardened', programs_are_hardened),
                       ('a fresh tree is made', tree_is_made),
                       ('it has kernels', a_kernel_is_there),
                       ('they are installed', they_are_installed),
                       ('they work', they_work),
                       ('DKMS builds the module', dkms_builds_the_module),
                       ('DKMS builds the bridge', dkms_builds_the_bridge),
                       ('they are removed', they_are_removed)]))
