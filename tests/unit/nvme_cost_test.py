#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions of the library for a 4 KiB read by a queue pair, submitted and completed, counted by callgrind.

Two runs that differ only in the number of reads: the difference is what the reads cost. What is counted is code that
comes from src/; the controller in software and the C library are not.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.environ['STRAIT_BUILD'], 'tests', 'nvme-cost')
READS = (1024, 5120)
CASES = ((1, 700), (32, 250), (128, 250))  # one alone pays for doorbells, clock and locks by itself


def count(reads, depth, out):
    subprocess.run(['valgrind', '-q', '--tool=callgrind', f'--callgrind-out-file={out}', PROGRAM, str(reads), str(depth)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    names, file, total, skip = {}, '', 0, False
    for line in open(out, encoding='utf-8', errors='replace'):
        match = re.match(r'(fl|fi|fe)=(\(\d+\))(?: (.*))?', line)
        if match:
            if match.group(3):
                names[match.group(2)] = match.group(3)
            file = names.get(match.group(2), '')
            continue
        match = re.match(r'c(?:fi|fl)=(\(\d+\)) (.*)', line)
        if match:
            names[match.group(1)] = match.group(2)
            continue
        if line.startswith('calls='):
            skip = True  # the next line is the cost of the callee
            continue
        match = re.match(r'[+\-*\d]\S* (\d+)$', line)
        if match:
            if not skip and re.search(r'(^|/)src/', file):
                total += int(match.group(1))
            skip = False
    return total


def main():
    print(f'1..{len(CASES)}')
    if not shutil.which('valgrind'):
        for number, (depth, _) in enumerate(CASES, 1):
            print(f'ok {number} - depth {depth} # SKIP valgrind is not installed')
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (depth, most) in enumerate(CASES, 1):
            few, many = (count(n, depth, os.path.join(folder, str(n))) for n in READS)
            each = (many - few) / (READS[1] - READS[0])
            good = 0 < each <= most
            bad += not good
            print(f'# depth {depth}: {each:.0f} instructions, {most} at most')
            print(f'{"ok" if good else "not ok"} {number} - depth {depth}')
    return bad > 0


sys.exit(main())
