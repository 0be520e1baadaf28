#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The time that the Python package takes per tensor: many small tensors in many files, into NumPy on the emulated device.

    STRAIT_LIBRARY=build/libstrait.so.0 PYTHONPATH=python bench/python/load.py [TENSORS] [FILES]

Prints microseconds of processor time per tensor, which depends little on what else the machine does: of the thread that loads in
user mode, which is the interpreter's work, with that in the kernel (new memory, opening files), and of the whole process, with
the copies of the library's threads.
"""
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import time

import strait


def make(folder, tensors, files):
    paths = []
    for k in range(files):
        header, at = {}, 0
        for i in range(tensors // files):
            count = (512, 256, 1024)[i % 3]
            header[f'model.layers.{k}.mlp.experts.{i}.weight'] = {
                'dtype': 'F16', 'shape': [count // 64, 32], 'data_offsets': [at, at + count]}
            at += count
        text = json.dumps(header).encode()
        paths.append(os.path.join(folder, f'model-{k}.safetensors'))
        with open(paths[-1], 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text + bytes(at))
    return paths


def used():
    thread = resource.getrusage(resource.RUSAGE_THREAD)
    return thread.ru_utime, thread.ru_utime + thread.ru_stime, time.process_time()


def main():
    tensors = int(sys.argv[1]) if len(sys.argv) > 1 else 90_000
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 160
    folder = tempfile.mkdtemp(prefix='strait-bench.')
    try:
        paths = make(folder, tensors, files)
        best = [float('inf')] * 3
        for _ in range(7):
            before, wall = used(), time.monotonic()
            loaded = [strait.load_file(path, 'emu:0', framework='numpy') for path in paths]
            count = sum(len(part) for part in loaded)
            best = [min(a, (now - start) / count * 1e6) for a, now, start in zip(best, used(), before)]
            wall = time.monotonic() - wall
            del loaded
        print(f'{count} tensors in {files} files: {best[0]:.2f} us per tensor (<= 3) of the loading thread, {best[1]:.2f} with the '
              f'kernel, {best[2]:.2f} of the process; {wall:.2f} s for all in the last round')
    finally:
        shutil.rmtree(folder)


main()
