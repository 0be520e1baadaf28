#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tensors of Strait's own in the hands of consumers that live longer, refuse, or run on other threads. TAP."""
import ctypes
import os
import shutil
import subprocess
import sys

from common import BUILD, Skip, expect, folder, free_memory, main, needs_numpy, np, sample, strait, test, write
from strait import _dlpack


class Managed(ctypes.Structure):
    """DLManagedTensor, laid out as dlpack.h has it, not as the package has it."""
    _fields_ = [('data', ctypes.c_void_p), ('device', ctypes.c_int32 * 2), ('ndim', ctypes.c_int32),
                ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16),
                ('shape', ctypes.POINTER(ctypes.c_int64)), ('strides', ctypes.POINTER(ctypes.c_int64)),
                ('byte_offset', ctypes.c_uint64), ('manager', ctypes.c_void_p), ('deleter', ctypes.c_void_p)]


api = ctypes.pythonapi
api.PyCapsule_GetPointer.argtypes, api.PyCapsule_GetPointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = b'used_dltensor'


def take(tensor):
    """What a consumer in C does: the address of the managed structure, which it now owns."""
    capsule = tensor.__dlpack__()
    address = api.PyCapsule_GetPointer(capsule, b'dltensor')
    api.PyCapsule_SetName(capsule, USED)
    return address


@test
def the_structure_is_that_of_dlpack():
    with folder() as path:
        data = os.urandom(60)
        tensor = strait.load_file(write(f'{path}/m', {'a': ('BF16', [5, 6], data)}), 'emu:0', framework='strait')['a']
        expect(tensor.__dlpack_device__() == (1, 0), 'the device')
        m = Managed.from_address(take(tensor))
        expect((m.ndim, m.shape[0], m.shape[1], m.strides[0], m.strides[1]) == (2, 5, 6, 6, 1), 'shape')
        expect((m.code, m.bits, m.lanes, m.byte_offset, tuple(m.device)) == (4, 16, 1, 0, (1, 0)), 'type')
        expect(ctypes.string_at(m.data, 60) == data, 'bytes')
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(m.deleter)(ctypes.addressof(m))


@needs_numpy
def numpy_takes_it_without_a_copy():
    with folder() as path:
        before = free_memory()
        tensor = strait.load_file(write(f'{path}/m', {'a': ('F32', [100, 10], os.urandom(4000))}), 'emu:0', framework='strait')['a']
        data, address = tensor.tobytes(), tensor.data_ptr
        array, other = np.from_dlpack(tensor), np.asarray(tensor)
        del tensor
        expect(array.ctypes.data == address == other.ctypes.data and array.tobytes() == data == other.tobytes(), 'the same memory')
        del array
        expect(free_memory() < before and other.tobytes() == data, 'the last one keeps it')
        del other
        expect(free_memory() == before, 'given back')


@test
def a_consumer_that_refuses_leaves_nothing_behind():
    with folder() as path:
        file = write(f'{path}/m', sample())
        before = free_memory()

        def refuse(capsule):
            raise RuntimeError('refused')

        for _ in range(3):
            try:
                refuse(strait.load_file(file, 'emu:0', framework='strait')['layer.0'].__dlpack__())
            except RuntimeError:
                pass
        expect(free_memory() == before and not _dlpack.alive, 'given back')


@test
def tensors_die_on_any_thread():
    """As a C++ destructor would: without the interpreter's lock, on a thread Python does not know."""
    with folder() as path:
        file = write(f'{path}/m', sample(8))
        before = free_memory()
        addresses = [take(t) for t in strait.load_file(file, 'emu:0', framework='strait').values()]
        expect(free_memory() < before, 'they are alive')
        libc = ctypes.CDLL(None)
        for address in addresses:
            thread, deleter = ctypes.c_ulong(), Managed.from_address(address).deleter
            expect(libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(deleter),
                                       ctypes.c_void_p(address)) == 0, 'thread')
            expect(libc.pthread_join(thread, None) == 0, 'join')
        expect(free_memory() == before and not _dlpack.alive, 'given back')


CHILD = '''
import atexit, ctypes, sys
late = []
atexit.register(lambda: [act() for act in late])  # runs after what the package does at the end
sys.path.insert(0, {here!r})
from common import strait
kept = strait.load_file({file!r}, device='emu:0', framework='strait')
{more}
print('end')
'''

# A consumer that drops its tensors when the interpreter is gone, as static objects of C++ do.
CONSUMER = '''
#include <stdlib.h>

struct managed {
	void *data;
	int device[2], ndim;
	unsigned char type[4];
	void *shape, *strides;
	unsigned long long byte_offset;
	void *manager;
	void (*deleter)(struct managed *);
};

static struct managed *kept[100];
static int n;

static void drop(void)
{
	while (n--) {
		*(volatile char *)kept[n]->data = 1; /* it is still there */
		if (kept[n]->deleter)
			kept[n]->deleter(kept[n]);
	}
}

void keep(struct managed *m)
{
	if (!n)
		atexit(drop);
	kept[n++] = m;
}
'''
KEEP = '''
consumer = ctypes.CDLL({library!r})
api = ctypes.pythonapi
api.PyCapsule_GetPointer.argtypes, api.PyCapsule_GetPointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
used = b'used_dltensor'
def keep(tensors):
    for tensor in tensors.values():
        capsule = tensor.__dlpack__()
        consumer.keep(ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, b'dltensor')))
        api.PyCapsule_SetName(capsule, used)
'''


def run_child(file, more):
    code = CHILD.format(here=os.path.dirname(os.path.abspath(__file__)), file=file, more=more)
    done = subprocess.run([sys.executable, '-X', 'faulthandler', '-c', code], capture_output=True, timeout=60,
                          env=dict(os.environ, STRAIT_BUILD=BUILD), check=False)
    expect(done.returncode == 0 and done.stdout == b'end\n' and not done.stderr, done)


@test
def tensors_may_be_left_to_the_end():
    with folder() as path:
        file = write(f'{path}/m', sample(20))
        run_child(file, '')
        run_child(file, 'import builtins; builtins.kept_for_ever = kept')
        run_child(file, 'capsules = [t.__dlpack__() for t in kept.values()]')
        run_child(file, 'ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))')


@test
def tensors_may_outlive_the_interpreter():
    if not shutil.which('cc'):
        raise Skip('no C compiler')
    with folder() as path:
        file = write(f'{path}/m', sample(20))
        with open(f'{path}/consumer.c', 'w') as source:
            source.write(CONSUMER)
        subprocess.run(['cc', '-shared', '-fPIC', '-o', f'{path}/consumer.so', f'{path}/consumer.c'], check=True)
        more = KEEP.format(library=f'{path}/consumer.so')
        run_child(file, more + 'keep(kept)')
        run_child(file, more + f'late.append(lambda: keep(strait.load_file({file!r}, device="emu:0", framework="strait")))')


main()
