# SPDX-License-Identifier: MIT
"""Hotplug of a guest's devices while it runs, by QEMU's monitor."""
import json
import os
import socket
import time

LIMIT = 120


class Monitor:
    """A connection to QEMU's monitor (QMP). Every call has a deadline."""

    def __init__(self, path):
        self.socket, self.data, self.events = socket.socket(socket.AF_UNIX), b'', []
        self.end = time.monotonic() + LIMIT
        try:
            self.connect(path)
        except Exception:
            self.socket.close()
            raise

    def connect(self, path):
        self.socket.settimeout(LIMIT)
        self.socket.connect(path)
        self.message()
        self.call('qmp_capabilities')

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()

    def message(self):
        while b'\n' not in self.data:
            self.socket.settimeout(max(self.end - time.monotonic(), 0.01))
            got = self.socket.recv(65536)
            if not got:
                raise OSError('the emulator is gone')
            self.data += got
        line, self.data = self.data.split(b'\n', 1)
        return json.loads(line)

    def call(self, command, **arguments):
        """The answer to a command. Raises ValueError with the emulator's message if it refuses."""
        self.socket.sendall(json.dumps({'execute': command, 'arguments': arguments}).encode() + b'\n')
        while True:
            answer = self.message()
            if 'error' in answer:
                raise ValueError(answer['error'].get('desc', 'refused'))
            if 'return' in answer:
                return answer['return']
            self.events.append(answer)

    def wait(self, event, device):
        """Wait until the emulator reports @event for @device."""
        while True:
            for seen in self.events:
                if seen.get('event') == event and seen.get('data', {}).get('device') == device:
                    return
            self.events.append(self.message())


def unplug(guest, what):
    """Ask the guest to release a device, as the slot's button does. Returns when the device is removed."""
    device = guest.slot(what)['id']
    with Monitor(guest.monitor) as monitor:
        monitor.call('device_del', id=device)
        monitor.wait('DEVICE_DELETED', device)
    return 'gone'


def put_back(guest, monitor, what):
    device = dict(guest.slot(what))
    if 'memdev' in device:
        # QEMU does not attach a memory object a second time: the new one maps the same file.
        old, device['memdev'] = guest.memory(), guest.memory(another=True)
        monitor.call('object-del', id=old)
        monitor.call('object-add', **{'qom-type': 'memory-backend-file', 'id': device['memdev'], 'mem-path': guest.bar,
                                      'size': os.path.getsize(guest.bar), 'share': True})
    monitor.call('device_add', **device)


def plug(guest, what):
    with Monitor(guest.monitor) as monitor:
        put_back(guest, monitor, what)
    return 'there'


def error(guest, what):
    """A fatal error on the link of a device, as its port reports it: the kernel resets all that is below that port."""
    with Monitor(guest.monitor) as monitor:
        said = monitor.call('human-monitor-command',
                            **{'command-line': f'pcie_aer_inject_error {guest.slot(what)["bus"]} DLP'})
    if not said.startswith('OK'):
        raise ValueError(said.strip() or 'the emulator gave no answer')
    return 'reported'


def restore(guest):
    """Put back every device that is not in its slot, however it was taken out."""
    back = []
    with Monitor(guest.monitor) as monitor:
        there = {entry['name'] for entry in monitor.call('qom-list', path='/machine/peripheral')}
        for name, device in guest.slots().items():
            if device['bus'] and device['id'] not in there:
                put_back(guest, monitor, name)
                back.append(name)
    return ' '.join(['back:', *back])
