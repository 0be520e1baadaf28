# SPDX-License-Identifier: MIT
"""A guest's device memory and drive, looked at from outside, and what else a guest may ask of its host."""
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
    """Of a range of the GPU's memory ("bar") or the drive ("drive"). ValueError if that cannot be."""
    path = {'bar': guest.bar, 'drive': guest.drive}.get(what)
    if path is None or kind not in SUMS:
        raise ValueError(f'neither "bar" nor "drive", or no checksum that is known: {what} {kind}')
    offset, length = int(offset, 0), int(length, 0)
    if offset < 0 or not 0 <= length <= LARGEST or offset + length > os.path.getsize(path):
        raise ValueError(f'{what} has no {length} bytes at {offset}')
    with open(path, 'rb') as file:
        file.seek(offset)
        return SUMS[kind](file.read(length))


EXPECT = re.compile(r'^\s*# expect-(bar|drive) (\S+) (\S+) (?:(\w+):)?([0-9a-fA-F]+)\s*$')


def expectation(guest, line):
    """(what the line expects, None or what is wrong), or None if the line expects nothing."""
    match = EXPECT.match(line)
    if not match:
        if re.match(r'^\s*# expect-', line):
            return line.strip(' #'), 'not to be understood'
        return None
    what, offset, length, kind, want = match.groups()
    name = f'{what} at {offset}, {length} bytes, seen from outside'
    try:
        have = checksum(guest, what, offset, length, kind or 'crc32c')
    except ValueError as error:
        return name, str(error)
    return name, None if have == want.lower() else f'is {have}, should be {want.lower()}'


class Agent:
    """Answers what a guest asks by /lab/bin/host, as long as it runs."""

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
