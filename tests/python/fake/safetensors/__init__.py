# SPDX-License-Identifier: MIT
"""A stand-in for safetensors 0.8, for tests where the real one is not installed: the same calls, errors and mapping."""
import json
import mmap


class SafetensorError(Exception):
    """As of safetensors."""


class _Slice:
    def __init__(self, file, name):
        self._file, self._name = file, name

    def get_shape(self):
        return list(self._file._info(self._name)['shape'])

    def get_dtype(self):
        return self._file._info(self._name)['dtype']

    def __getitem__(self, index):
        part = self._file._view(self._name)[index]
        return part.clone() if self._file._backend == 'pread' else part


class safe_open:  # noqa: N801
    """Opens a safetensors lazily and returns tensors as asked."""
    opened = 0

    def __init__(self, filename, framework, device='cpu', *, backend='mmap'):
        if backend not in ('mmap', 'pread'):
            raise SafetensorError(f'backend {backend} is invalid')
        if framework not in ('pt', 'np', 'numpy'):
            raise SafetensorError(f'framework {framework} is invalid')
        try:
            file = open(filename, 'rb')
        except OSError:
            raise FileNotFoundError(f'No such file or directory: {filename}') from None
        type(self).opened += 1
        with file:
            head = file.read(8)
            if len(head) < 8:
                raise SafetensorError('Error while deserializing header: header too small')
            size = int.from_bytes(head, 'little')
            try:
                self._header = json.loads(file.read(size))
            except ValueError as error:
                raise SafetensorError(f'Error while deserializing header: {error}') from None
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._metadata, self._data = self._header.pop('__metadata__', None), 8 + size
        self._framework, self._device, self._backend, self._closed = framework, device, backend, False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._closed = True

    def _open(self):
        if self._closed:
            raise SafetensorError('File is closed')

    def _info(self, name):
        self._open()
        if name not in self._header:
            raise SafetensorError(f'File does not contain tensor {name}')
        return self._header[name]

    def _view(self, name):
        import torch
        info = self._info(name)
        begin, end = info['data_offsets']
        dtype = {'F32': torch.float32, 'F16': torch.float16, 'BF16': torch.bfloat16, 'U8': torch.uint8, 'BOOL': torch.bool, 'I64': torch.int64}[info['dtype']]
        if begin == end:
            return torch.empty(info['shape'], dtype=dtype)
        return torch.frombuffer(self._map, dtype=torch.uint8, offset=self._data + begin, count=end - begin).view(dtype).reshape(info['shape'])

    def keys(self):
        self._open()
        return sorted(self._header)

    def offset_keys(self):
        self._open()
        return sorted(self._header, key=lambda name: self._header[name]['data_offsets'])

    def metadata(self):
        self._open()
        return self._metadata

    def get_tensor(self, name):
        if self._framework != 'pt':
            import numpy
            info = self._info(name)
            return numpy.frombuffer(self._map, 'u1', info['data_offsets'][1] - info['data_offsets'][0], self._data + info['data_offsets'][0])
        return self._view(name)

    def get_tensors(self):
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name):
        self._info(name)
        return _Slice(self, name)
