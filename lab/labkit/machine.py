# SPDX-License-Identifier: MIT
"""The emulated machines: their devices, their start and their end."""
import ctypes
import os
import signal
import subprocess

from .clock import tsc_khz
from .initramfs import tool
from .kernel import Unavailable, cache_dir, script

TOPOLOGIES = ('root-ports', 'switch', 'flat')
IOMMUS = ('strict', 'lazy', 'pt', 'off')
BAR_SIZE = 256 << 20
DRIVE_SIZE = 1 << 30
VIRTIO_SIZE = 64 << 20
# The image of a drive is read from outside at once and deleted after the run: it need not reach the host's disk, which
# would make the drive slow while that disk is busy.
NO_FLUSH = 'cache.no-flush=on'
PR_SET_PDEATHSIG = 1
# Looked up before there are threads: between fork and exec no lock may be taken.
PRCTL = ctypes.CDLL(None).prctl

IOMMU_ARGS = {
    'strict': 'intel_iommu=on iommu.passthrough=0 iommu.strict=1',
    'lazy': 'intel_iommu=on iommu.passthrough=0 iommu.strict=0',
    'pt': 'intel_iommu=on iommu=pt',
    'off': 'intel_iommu=off',
}


def no_p2pdma(kernel, options):
    """Why PCI P2PDMA cannot be tested on this machine, or an empty string."""
    if not kernel.has('PCI_P2PDMA'):
        return f'kernel {kernel.release} has no PCI P2PDMA'
    if options.topology == 'switch' and options.iommu in ('strict', 'lazy'):
        return 'below a switch QEMU translates what the kernel takes for bus addresses: needs --iommu pt or off'
    return ''


def not_translating(options):
    """Why what needs a translating IOMMU cannot be tested on this machine, or an empty string."""
    return '' if options.iommu in ('strict', 'lazy') else f'the IOMMU does not translate with --iommu {options.iommu}'


def not_remapping(options):
    """Why interrupts of devices are not remapped on this machine, or an empty string."""
    if options.iommu == 'off':
        return 'there is no IOMMU'
    return 'the IOMMU does not remap interrupts' if options.noremap else ''


def die_with_parent():
    """The kernel kills the emulator when this program ends in any way."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def emulator(options):
    """
    The path of QEMU: this machine's, or for processors that run at the same time a newer one. There QEMU 7.2 may run a breakpoint
    that another processor has already removed, as the kernel does when it patches its own code.
    """
    if os.environ.get('STRAIT_LAB_QEMU'):
        return os.environ['STRAIT_LAB_QEMU']
    if options.parallel:
        script('fetch-qemu')
        return os.path.join(cache_dir(), 'qemu', 'qemu')
    qemu = tool('qemu-system-x86_64')
    if not qemu:
        raise Unavailable('the package qemu-system-x86 is missing')
    return qemu


def has_io_uring(qemu, path):
    """Can this emulator, on this machine, read files by io_uring?"""
    command = [qemu, '-machine', 'none', '-nodefaults', '-display', 'none', '-monitor', 'stdio', '-blockdev',
               f'driver=file,node-name=try,filename={path},aio=io_uring']
    try:
        return subprocess.run(command, input=b'quit\n', capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def as_argument(device):
    """A device as the monitor names it, for the emulator's command line."""
    words = [f'{key}={value}' for key, value in device.items() if key != 'driver' and value]
    return ','.join([device['driver'], *words])


class Guest:
    """One emulated machine. Its files are in @folder."""

    def __init__(self, index, folder, kernel, initrd, options, shell=False, network=None):
        self.index, self.folder, self.kernel, self.options, self.shell = index, folder, kernel, options, shell
        os.makedirs(folder, exist_ok=True)
        self.console = os.path.join(folder, 'console.log')
        self.report = os.path.join(folder, 'report.log')
        self.bar = os.path.join(folder, 'bar')
        self.drive = os.path.join(folder, 'drive.img')
        self.virtio = os.path.join(folder, 'virtio.img')
        self.agent = os.path.join(folder, 'agent')
        self.monitor = os.path.join(folder, 'monitor')
        self.errors = os.path.join(folder, 'qemu.log')
        for path, size in ((self.bar, BAR_SIZE), (self.drive, DRIVE_SIZE), (self.virtio, VIRTIO_SIZE), (self.report, 0),
                           (self.console, 0)):
            with open(path, 'wb') as file:
                file.truncate(size)
        self.memories = 0
        self.command = self.arguments(initrd, network)
        self.process = None

    def arguments(self, initrd, network):
        qemu, options, debug = emulator(self.options), self.options, self.kernel.name == 'debug'
        threads = 'multi' if options.parallel else 'single'
        # EPYC: on the kernel's list of processors whose host bridge forwards peer-to-peer transfers.
        args = [qemu, '-machine', 'q35,kernel-irqchip=split', '-accel', f'tcg,thread={threads}', '-cpu', 'EPYC',
                '-smp', '2', '-m', '2048' if debug else '1024', '-nodefaults', '-no-user-config', '-nographic', '-no-reboot',
                '-kernel', self.kernel.image, '-initrd', initrd]
        args += ['-serial', 'mon:stdio' if self.shell else f'file:{self.console}', '-serial', f'file:{self.report}',
                 '-chardev', f'socket,id=agent,path={self.agent},server=on,wait=off', '-serial', 'chardev:agent',
                 '-qmp', f'unix:{self.monitor},server=on,wait=off',
                 # Native PCIe hotplug with an attention button, as on servers, and not ACPI's.
                 '-global', 'ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off']
        if options.iommu != 'off':
            args += ['-device', f'intel-iommu,intremap={"off" if options.noremap else "on"}']
        for name, path in (('drive', self.drive), ('virtio', self.virtio)):
            args += ['-blockdev', f'driver=raw,node-name={name},discard=unmap,{NO_FLUSH},file.driver=file,'
                     f'file.filename={path}']
        args += ['-object', f'memory-backend-file,id={self.memory()},mem-path={self.bar},size={BAR_SIZE},share=on']
        args += self.topology()
        if options.drives:
            args += self.more_drives()
        args += ['-device', 'edu,dma_mask=0xffffffffffffffff']
        args += ['-netdev', 'user,id=net0,restrict=on',
                 '-device', f'virtio-net-pci,netdev=net0,romfile=,mac={self.mac(0)}']
        if network:
            path, listens = network
            args += ['-netdev', f'stream,id=net1,addr.type=unix,addr.path={path},server={"on" if listens else "off"}',
                     '-device', f'virtio-net-pci,netdev=net1,romfile=,mac={self.mac(1)}']
        # A drive without P2PDMA, whose driver is loaded by the tests that use it.
        args += ['-device', 'pcie-root-port,id=rp9,chassis=9,slot=9', '-device', as_argument(self.slots()['virtio'])]
        return args + ['-append', self.boot_line()]

    def mac(self, card):
        return f'52:54:00:53:{card:02x}:{self.index + 1:02x}'

    def boot_line(self):
        words = ['console=ttyS0', 'panic=-1', 'oops=panic' if not self.shell else '', 'random.trust_cpu=on',
                 'nokaslr', 'mitigations=off', 'edd=off',
                 # An emulated processor on a busy machine may not run for seconds.
                 'no_timer_check', 'nmi_watchdog=0', 'watchdog_thresh=60', 'rcupdate.rcu_cpu_stall_timeout=120',
                 # Nor can it calibrate its TSC against the PIT then, or its watchdog compare TSC and HPET at one moment.
                 'tsc=reliable', f'tsc_early_khz={tsc_khz()}' if tsc_khz() else '',
                 # The kernel patches its code mostly while it starts: /init brings the other processors online.
                 'maxcpus=1' if self.options.parallel else '',
                 IOMMU_ARGS[self.options.iommu],
                 'loglevel=4' if self.shell else 'loglevel=7']
        return ' '.join(word for word in words if word)

    def memory(self, another=False):
        """The name of the GPU's memory object at the monitor."""
        self.memories += another
        return f'gpu{self.memories}'

    def slots(self):
        """The devices that can be taken out, as the emulator's monitor names them."""
        buses = {'flat': (None, None), 'root-ports': ('rp1', 'rp2'), 'switch': ('down1', 'down2')}[self.options.topology]
        return {
            'drive': {'driver': 'nvme', 'id': 'nvme', 'drive': 'drive', 'serial': 'strait0', 'bus': buses[0]},
            'gpu': {'driver': 'ivshmem-plain', 'id': 'vgpu', 'memdev': self.memory(), 'bus': buses[1]},
            'virtio': {'driver': 'virtio-blk-pci', 'id': 'vblk', 'drive': 'virtio', 'bus': 'rp9'},
        }

    def slot(self, what):
        """One of them. ValueError if there is none."""
        found = self.slots().get(what)
        if not found:
            raise ValueError(f'"{what}" is none of {", ".join(self.slots())}')
        if not found['bus']:
            raise ValueError('a device in the root complex cannot be taken out')
        return found

    def topology(self):
        devices = ['-device', as_argument(self.slots()['drive']), '-device', as_argument(self.slots()['gpu'])]
        if self.options.topology == 'flat':
            return devices
        if self.options.topology == 'root-ports':
            return ['-device', 'pcie-root-port,id=rp1,chassis=1,slot=1',
                    '-device', 'pcie-root-port,id=rp2,chassis=2,slot=2,pref64-reserve=1G', *devices]
        return ['-device', 'pcie-root-port,id=rp1,chassis=1,slot=1,pref64-reserve=2G',
                '-device', 'x3130-upstream,id=up,bus=rp1',
                '-device', 'xio3130-downstream,id=down1,bus=up,chassis=2,slot=2',
                '-device', 'xio3130-downstream,id=down2,bus=up,chassis=3,slot=3', *devices]

    def more_drives(self):
        """Drives with other properties, named by their serial numbers, each below a root port."""
        args = []

        def image(name):
            path = os.path.join(self.folder, name + '.img')
            with open(path, 'wb') as file:
                file.truncate(64 << 20)
            return path

        def controller(name, more):
            slot = 20 + len(args)
            args.extend(['-device', f'pcie-root-port,id=port-{name},chassis={slot},slot={slot}',
                         '-device', f'nvme,id={name},serial={name},bus=port-{name}{more}'])

        def drive(name, more='', how=''):
            args.extend(['-drive', f'file={image(name)},format=raw,if=none,cache=unsafe,id=image-{name}{how}'])
            controller(name, f',drive=image-{name}{more}')

        # The newer QEMU refuses a drive without a limit for transfers.
        if not self.options.parallel:
            drive('mdts0', ',mdts=0')
        drive('mdts3', ',mdts=3')
        drive('mdts7', ',mdts=7')
        drive('lba4096', ',logical_block_size=4096,physical_block_size=4096')
        drive('few', ',max_ioqpairs=1,msix_qsize=2')
        drive('cmb', ',cmb_size_mb=16')
        drive('slow', how=',throttling.iops-total=4')
        # Reads of cached data complete without waking a thread of the emulator.
        drive('fast', how=',aio=io_uring' if has_io_uring(emulator(self.options), image('fast')) else '')
        # Reads of one block and writes of another fail.
        args.extend(['-blockdev', f'driver=file,filename={image("errors")},node-name=file-errors,{NO_FLUSH}',
                     '-blockdev', f'driver=raw,file=file-errors,node-name=raw-errors,{NO_FLUSH}',
                     '-blockdev', 'driver=blkdebug,image=raw-errors,node-name=image-errors,'
                     'inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.sector=2048,inject-error.0.errno=5,'
                     'inject-error.1.event=none,inject-error.1.iotype=write,inject-error.1.sector=4096,inject-error.1.errno=5'])
        controller('errors', ',drive=image-errors')
        controller('two', '')
        for nsid, block in ((1, 512), (2, 4096)):
            args.extend(['-drive', f'file={image(f"two{nsid}")},format=raw,if=none,cache=unsafe,id=image-two{nsid}',
                         '-device', f'nvme-ns,drive=image-two{nsid},bus=two,nsid={nsid},logical_block_size={block},'
                         f'physical_block_size={block}'])
        return args

    def start(self):
        with open(self.errors, 'wb') as errors:
            self.process = subprocess.Popen(
                self.command, stdin=None if self.shell else subprocess.DEVNULL,
                stdout=None if self.shell else errors, stderr=errors,
                preexec_fn=die_with_parent)

    def stop(self):
        """End the emulator and wait for its end."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
