# SPDX-License-Identifier: MIT
"""The network between guests: every frame is sent to all other guests."""
import os
import selectors
import socket
import struct
import threading

# A guest that does not read loses frames, as on a wire: it does not delay other guests.
BACKLOG = 4 << 20


class Hub:
    def __init__(self, path):
        self.path = path
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.server.setblocking(False)
        self.wake, self.woken = os.pipe()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.server, selectors.EVENT_READ)
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.input, self.output = {}, {}
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            for key, events in self.selector.select():
                if key.fileobj is self.server:
                    peer, _ = self.server.accept()
                    peer.setblocking(False)
                    self.input[peer], self.output[peer] = bytearray(), bytearray()
                    self.selector.register(peer, selectors.EVENT_READ)
                elif key.fileobj == self.wake:
                    return
                else:
                    self.serve(key.fileobj, events)

    def serve(self, peer, events):
        try:
            if events & selectors.EVENT_WRITE:
                self.flush(peer)
            if events & selectors.EVENT_READ:
                data = peer.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                self.input[peer] += data
                self.forward(peer)
        except BlockingIOError:
            pass
        except OSError:
            self.selector.unregister(peer)
            del self.input[peer], self.output[peer]
            peer.close()

    def forward(self, sender):
        data = self.input[sender]
        while len(data) >= 4:
            end = 4 + struct.unpack('!I', data[:4])[0]
            if len(data) < end:
                break
            frame = bytes(data[:end])
            del data[:end]
            for peer, queue in self.output.items():
                if peer is not sender and len(queue) < BACKLOG:
                    queue += frame
        for peer in list(self.output):
            if peer is not sender and self.output[peer]:
                try:
                    self.flush(peer)
                except BlockingIOError:
                    pass

    def flush(self, peer):
        queue = self.output[peer]
        try:
            while queue:
                del queue[:peer.send(queue[:1 << 16])]
        except BlockingIOError:
            pass
        except OSError:
            queue.clear()
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if queue else 0)
        self.selector.modify(peer, want)

    def close(self):
        os.write(self.woken, b'x')
        self.thread.join(5)
        for peer in [self.server, *self.input]:
            peer.close()
        os.close(self.wake)
        os.close(self.woken)
        os.unlink(self.path)
