#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model file into PyTorch: strait.load_file beside safetensors.torch.load_file, in one run, compared bit by bit.

    STRAIT_LIBRARY=build/libstrait.so.0 PYTHONPATH=python bench/gpu/model.py [FILE] [SIZE_GIB] [ROUNDS]

FILE is made if it is not there, and kept.
"""
import json
import os
import struct
import sys
import time

import torch
from safetensors.torch import load_file

import strait


def make(path, size):
    """Tensors of the kinds a language model has, random bytes, no finite-ness asked."""
    header, off, k = {"__metadata__": {"format": "pt"}}, 0, 0
    shapes = [("BF16", 2, (4096, 4096)), ("BF16", 2, (14336, 4096)), ("F32", 4, (4096,)), ("BF16", 2, (1024, 4096)),
              ("I64", 8, (3, 5)), ("BF16", 2, (4097,)), ("F8_E4M3", 1, (33, 129)), ("BOOL", 1, (7,))]
    while off < size:
        dtype, width, shape = shapes[k % len(shapes)]
        n = width
        for d in shape:
            n *= d
        header[f"layer.{k}"] = {"dtype": dtype, "shape": list(shape), "data_offsets": [off, off + n]}
        off, k = off + n, k + 1
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        left = off
        while left:
            block = torch.randint(0, 2, (min(left, 1 << 28),), dtype=torch.uint8, device="cuda").mul_(0)
            block.random_(0, 2 if left < 1 << 10 else 256)
            f.write(block.cpu().numpy().tobytes())
            left -= block.numel()
    os.rename(path + ".tmp", path)
    return off


def bits(t):
    return t.contiguous().view(torch.uint8) if t.numel() and t.dim() else t.reshape(-1).view(torch.uint8)


def timed(fn):
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = fn()
    torch.cuda.synchronize()
    return time.perf_counter() - start, out


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "/var/tmp/strait-model.safetensors"
    size = float(sys.argv[2]) if len(sys.argv) > 2 else 8
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    if not os.path.exists(path):
        make(path, int(size * (1 << 30)))
    total = os.path.getsize(path)
    with open(path, "rb") as f:  # into the page cache
        while f.read(1 << 26):
            pass
    best = {"strait": 1e9, "safetensors": 1e9}
    stats = {}
    for _ in range(rounds):
        for name, fn in (("safetensors", lambda: load_file(path, device="cuda")),
                         ("strait", lambda: strait.load_file(path, device="cuda:0", stats=stats))):
            seconds, out = timed(fn)
            best[name] = min(best[name], seconds)
            del out
            torch.cuda.empty_cache()
    want, got = load_file(path, device="cuda"), strait.load_file(path, device="cuda:0")
    assert want.keys() == got.keys()
    for k in want:
        assert want[k].dtype == got[k].dtype and want[k].shape == got[k].shape, k
        assert torch.equal(bits(want[k]), bits(got[k])), k
    print(f"{path}, {total / 2**30:.2f} GiB cached, {len(want)} tensors, best of {rounds}; equal bit by bit")
    for name, seconds in best.items():
        print(f"  {name:12s} {total / seconds / 1e9:6.2f} GB/s  {seconds:.3f} s")
    ratio = best["safetensors"] / best["strait"]
    print(f"  ratio        {ratio:6.2f}       >= 4  {'ok' if ratio >= 4 else 'MISSED'}   routes {stats['routes']}")


main()
