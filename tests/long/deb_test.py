#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Debian packages: built, checked by lintian, installed, used and removed in a fresh Debian tree. TAP."""
import atexit
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'tree'))

import tap  # noqa: E402

WORK = tempfile.mkdtemp(prefix='strait-deb.', dir='/var/tmp')
TREE = os.path.join(WORK, 'tree')
PACKAGES = ['libcufile-strait', 'libstrait-dev', 'libstrait0', 'python3-strait', 'strait', 'strait-dkms']
NEEDED = 'python3,liburing2,gcc,libc6-dev,pkg-config'
MIRROR = 'lab=$1; self=deb_test; . "$1/lib.sh"; mirror'
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
    names = [os.path.basename(path).partition('_')[0] for path in debs()]
    return [output] if status else [] if names == PACKAGES else [f'packages: {names}']


def lintian_finds_no_errors():
    if not shutil.which('lintian'):
        raise tap.Skip('lintian is not installed')
    status, output = tap.run('lintian', '--allow-root', '--fail-on', 'error', '--suppress-tags',
                             'bogus-mail-host,bogus-mail-host-in-debian-changelog', *debs())
    return [output] if status else []


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


def they_are_installed():
    needs_tree()
    listing.before = listing()
    os.makedirs(f'{TREE}/debs')
    for path in debs():
        shutil.copy(path, f'{TREE}/debs')
    # DKMS brings compilers and kernels along: the tree has not its dependency, and dpkg is told so for this one.
    names = [f'/debs/{os.path.basename(path)}' for path in debs()]
    status, output = inside('dpkg', '--install', *[name for name in names if 'dkms' not in name])
    if not status:
        status, output = inside('dpkg', '--unpack', '--force-depends', *[name for name in names if 'dkms' in name])
    return [output] if status else []


def they_work():
    needs_tree()
    problems = []
    with open(f'{TREE}/use.c', 'w') as file:
        file.write(USE)
    for command, text in ((['strait', 'info'], 'emu:0'), (['strait', 'run', '--quiet', '--', 'strait', '--version'], 'strait 0'),
                          (['python3', '-c', 'import strait; print(strait.devices())'], 'emu:0'),
                          (['python3', '-m', 'strait', 'info'], 'emu:0'),
                          (['sh', '-c', 'cc -o /use /use.c $(pkg-config --cflags --libs strait) && /use'], '0.'),
                          (['sh', '-c', 'test -e /usr/src/strait-*/strait/main.c && echo there'], 'there'),
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
    left = {name for name in listing() - listing.before if 'strait' in name or 'cufile' in name}
    return [f'left behind: {name}' for name in sorted(left)]


if __name__ == '__main__':
    sys.exit(tap.main([('they are built', they_are_built),
                       ('lintian finds no errors', lintian_finds_no_errors),
                       ('a fresh tree is made', tree_is_made),
                       ('they are installed', they_are_installed),
                       ('they work', they_work),
                       ('they are removed', they_are_removed)]))
