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
# The checksum of a file, by other code than the library's.
CRC = r'''
#include <stdint.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	static uint32_t table[256];
	static unsigned char data[1 << 20];
	uint32_t crc = ~0u;
	FILE *file = fopen(argv[argc - 1], "rb");

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
		table[i] = c;
	}
	for (size_t n; file && (n = fread(data, 1, sizeof(data), file)) > 0;)
		for (size_t i = 0; i < n; i++)
			crc = table[(crc ^ data[i]) & 255] ^ crc >> 8;
	printf("%08x", ~crc);
	return !file;
}
'''
# A file that is shorter than it was when its length was asked for.
SHRINK = r'''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <strait/strait.h>
int strait_file_info(struct strait_endpoint *ep, struct strait_file_info *info)
{
	int (*real)(struct strait_endpoint *, struct strait_file_info *) = dlsym(RTLD_NEXT, "strait_file_info");
	int rc = real(ep, info);

	info->length += 100;
	return rc;
}
'''


def compile_text(text, name, *options):
    with open(f'{WORK.name}/{name}.c', 'w') as file:
        file.write(text)
    status, output = tap.run('cc', '-O2', f'-I{tap.SOURCE}/include', *options, '-o', f'{WORK.name}/{name}', f'{WORK.name}/{name}.c')
    return [output] if status else []


def it_compiles():
    if not shutil.which('mpicc') or not shutil.which('mpirun'):
        raise tap.Skip('MPI is not installed: packages libopenmpi-dev, openmpi-bin')
    status, output = tap.run('mpicc', '-Wall', '-Wextra', f'-I{tap.SOURCE}/include', '-o', f'{WORK.name}/mpi_load',
                             f'{tap.SOURCE}/examples/mpi_load.c', f'-L{tap.BUILD}', '-lstrait', f'-Wl,-rpath,{tap.BUILD}')
    return ([output] if status or output else []) + compile_text(CRC, 'crc') + compile_text(SHRINK, 'shrink.so', '-shared', '-fPIC', '-ldl')


def ranks_load_a_file_together():
    if not os.path.exists(f'{WORK.name}/mpi_load'):
        raise tap.Skip('it is not compiled')
    found = []
    # No bytes, less than a share, a share for some of the ranks, more shares than ranks.
    for size in (0, 1000, 150_000_000, 300_000_001):
        with open(f'{WORK.name}/data', 'wb') as file:
            for start in range(0, size, 1 << 24):
                file.write(os.urandom(min(size - start, 1 << 24)))
        crc = tap.run(f'{WORK.name}/crc', f'{WORK.name}/data')[1]
        status, output = tap.run(*RUN, f'{WORK.name}/data', 'emu:0')
        if status or output != f'{size} bytes on 4 ranks, CRC-32C {crc}\n':
            found.append(f'{size}: {status}: {output}, not CRC-32C {crc}')
    return found


def a_file_that_ends_early_is_an_error():
    if not os.path.exists(f'{WORK.name}/mpi_load'):
        raise tap.Skip('it is not compiled')
    with open(f'{WORK.name}/data', 'wb') as file:
        file.write(os.urandom(1000))
    status, output = tap.run(*RUN[:1], '-x', f'LD_PRELOAD={WORK.name}/shrink.so', *RUN[1:], f'{WORK.name}/data', 'emu:0')
    return [] if status and 'rank 0: cannot read' in output and 'No data available' in output else [f'{status}: {output}']


def an_error_ends_all():
    if not os.path.exists(f'{WORK.name}/mpi_load'):
        raise tap.Skip('it is not compiled')
    status, output = tap.run(*RUN, f'{WORK.name}/none')
    return [] if status and 'No such file' in output else [f'{status}: {output}']


if __name__ == '__main__':
    sys.exit(tap.main([('it compiles', it_compiles), ('the ranks load a file together', ranks_load_a_file_together),
                       ('a file that ends early is an error', a_file_that_ends_early_is_an_error),
                       ('an error ends all', an_error_ends_all)]))
