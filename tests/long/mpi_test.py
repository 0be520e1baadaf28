#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/mpi_load.c on four processes of Open MPI. TAP."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'tree'))

import tap  # noqa: E402

WORK = tempfile.TemporaryDirectory(prefix='strait-mpi.')
RUN = ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '4', f'{WORK.name}/mpi_load']


def it_compiles():
    if not shutil.which('mpicc') or not shutil.which('mpirun'):
        raise tap.Skip('MPI is not installed: packages libopenmpi-dev, openmpi-bin')
    status, output = tap.run('mpicc', '-Wall', '-Wextra', f'-I{tap.SOURCE}/include', '-o', f'{WORK.name}/mpi_load',
                             f'{tap.SOURCE}/examples/mpi_load.c', f'-L{tap.BUILD}', '-lstrait', f'-Wl,-rpath,{tap.BUILD}')
    return [output] if status or output else []


def ranks_load_a_file_together():
    if not os.path.exists(f'{WORK.name}/mpi_load'):
        raise tap.Skip('it is not compiled')
    found = []
    # No bytes, less than a share, a share for some of the ranks, more shares than ranks.
    for size in (0, 1000, 150_000_000, 300_000_001):
        with open(f'{WORK.name}/data', 'wb') as file:
            file.write(os.urandom(min(size, 1 << 20)))
            file.truncate(size)
        status, output = tap.run(*RUN, f'{WORK.name}/data', 'emu:0')
        if status or not output.startswith(f'{size} bytes on 4 ranks') or 'DIFFER' in output:
            found.append(f'{size}: {status}: {output}')
    return found


def an_error_ends_all():
    if not os.path.exists(f'{WORK.name}/mpi_load'):
        raise tap.Skip('it is not compiled')
    status, output = tap.run(*RUN, f'{WORK.name}/none')
    return [] if status and 'No such file' in output else [f'{status}: {output}']


if __name__ == '__main__':
    sys.exit(tap.main([('it compiles', it_compiles), ('the ranks load a file together', ranks_load_a_file_together),
                       ('an error ends all', an_error_ends_all)]))
