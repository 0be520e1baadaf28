# SPDX-License-Identifier: MIT
"""The host's view of a guest's device memory and drive, and the requests that a guest sends to its host."""
import hashlib
import os
import re
import socket
import threading
import time
import zlib

from . import monitor

LARGEST = 256 << 20


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def crc32c(data):
    value, table = 0xffffffff, TABLE
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return f'{value ^ 0xffffffff:08x}'


SUMS = {
    'crc32c': crc32c,
    'crc32': lambda data: f'{zlib.crc32(data):08x}',
    'sha256': lambda data: hashlib.sha256(data).hexdigest(),
}


def checksum(guest, what, offset, length, kind='crc32c'):
    """The checksum of a range of the GPU's memory ("bar") or the drive ("drive"). Raises ValueError for a bad argument."""
    path = {'bar': guest.bar, 'drive': guest.drive}.get(what)
    if path is None or kind not in SUMS:
        raise ValueError(f'"{what} {kind}": take bar or drive, and crc32c, crc32 or sha256')
    offset, length = int(offset, 0), int(length, 0)
    if offset < 0 or not 0 <= length <= LARGEST or offset + length > os.path.getsize(path):
        raise ValueError(f'{what} has no {length} bytes at {offset}')
    with open(path, 'rb') as file:
        file.seek(offset)
        return SUMS[kind](file.read(length))


EXPECT = re.compile(r'^\s*# expect-(bar|drive) (\S+) (\S+) (?:(\w+):)?([0-9a-fA-F]+)\s*$')


def expectation(guest, line):
    """(what the line expects, an error or None), or None if the line is no expectation."""
    match = EXPECT.match(line)
    if not match:
        if re.match(r'^\s*# expect-', line):
            return line.strip(' #'), 'cannot be parsed'
        return None
    what, offset, length, kind, want = match.groups()
    name = f'{what} at {offset}, {length} bytes, seen from outside'
    try:
        have = checksum(guest, what, offset, length, kind or 'crc32c')
    except ValueError as error:
        return name, str(error)
    return name, None if have == want.lower() else f'is {have}, should be {want.lower()}'


class Agent:
    """Answers the requests of /lab/bin/host while the guest runs."""

    def __init__(self, guest):
        self.guest, self.stopped = guest, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(0.5)
            while not self.stopped:
                try:
                    port.connect(self.guest.agent)
                    break
                except OSError:
                    time.sleep(0.1)
            data = b''
            while not self.stopped:
                try:
                    got = port.recv(4096)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not got:
                    return
                data += got
                while b'\n' in data:
                    line, data = data.split(b'\n', 1)
                    answer = self.answer(line.decode(errors='replace').strip())
                    try:
                        port.sendall(answer.encode() + b'\n')
                    except OSError:
                        return

    def answer(self, line):
        word, *rest = line.split() or ['']
        ask = {'unplug': monitor.unplug, 'plug': monitor.plug, 'error': monitor.error, 'restore': monitor.restore}.get(word)
        try:
            return 'ok ' + (ask(self.guest, *rest) if ask else checksum(self.guest, word, *rest))
        except (TypeError, ValueError, OSError) as error:
            return f'error {error}'

    def stop(self):
        self.stopped = True
        self.thread.join(10)
