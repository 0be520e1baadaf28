# SPDX-License-Identifier: MIT
"""The suite in the guest: its programs, the initramfs that holds them, and a run from boot to power-off."""
import glob
import os
import re
import shlex
import shutil
import sys
import tempfile
import time

from . import machine
from .hub import Hub
from .initramfs import LIBRARIES, Initramfs, tool
from .kernel import LAB, Failed, Unavailable, cache_dir
from .outside import Agent, expectation
from .report import Program, Result, bad_lines

BOOT_LIMIT = 180
PROGRAM_LIMIT = 120
# How much longer everything may take on a kernel with checkers.
SLOW = {'debug': 5}
# The boot of a second machine takes longer than so few programs.
LEAST = 8

# Modules that the guest loads while it starts, unless they are built in. Few, as each takes long on an emulated processor.
MODULES = ('virtio_pci', 'virtio_net', 'nvme')
# Modules that are in the guest, for modprobe and for what loads them on demand: mount, "rdma link add".
MORE_MODULES = ('ext4', 'xfs', 'loop', 'vfio_pci', 'vfio_iommu_type1', 'crc32_generic', 'crc32c_generic', 'rdma_rxe',
                'ib_uverbs', 'rdma_ucm', 'rdma_cm', 'nvme_tcp', 'nvmet', 'nvmet_tcp', 'nvme_rdma', 'nvmet_rdma',
                'null_blk', 'virtio_blk', 'uio_pci_generic', 'dm_mod', 'raid1')
# The same for programs that take long, and are left out of other runs for their size.
LONG_MODULES = ('nfsd', 'nfsv4', 'rpcrdma')
TOOLS = ('mkfs.ext4', 'mkfs.xfs', 'xfs_io', 'rdma', 'ibv_rc_pingpong', 'ibv_devinfo', 'rping', 'ib_read_bw', 'ib_read_lat',
         'ib_write_bw', 'ib_write_lat')


class Test:
    """A program of the suite: a line of tests/lab/lab.txt in the build folder."""

    def __init__(self, build, line):
        self.name, tags, path, words = line.split('\t')
        self.tags = set() if tags == '-' else set(tags.split(','))
        self.words = '' if words == '-' else words
        self.path = path if os.path.isabs(path) else os.path.join(build, path)

    def word(self, tag):
        for word in self.tags:
            if word.startswith(tag + '='):
                return word.split('=', 1)[1]
        return None

    def number(self, tag, default):
        word = self.word(tag)
        return default if word is None else int(word)

    def limit(self):
        """Seconds that it may take on a kernel without checkers."""
        return self.number('limit', PROGRAM_LIMIT)

    @property
    def modules(self):
        """The modules from outside the tree that it tests."""
        return {tag.split('=', 1)[1] for tag in self.tags if tag.startswith('module=')}

    def wanted(self, options):
        if 'long' in self.tags and not options.long:
            return False
        if options.tag and options.tag not in self.tags and not (options.long and options.tag + '-long' in self.tags):
            return False
        return self.modules <= {module.name for module in options.module}


def read_list(build):
    path = os.path.join(build, 'tests', 'lab', 'lab.txt')
    if not os.path.exists(path):
        raise Unavailable(f'{build} has no tests: build the target all-tests of the source tree')
    with open(path) as file:
        return [Test(build, line) for line in file.read().splitlines() if line and not line.startswith('#')]


def divide(tests, jobs):
    """Divide programs among machines so that each has about the same sum of time limits. They stay in order."""
    parts = [[] for _ in range(min(jobs, len(tests)) if len(tests) > LEAST else 1)]
    work = [0] * len(parts)
    for test in sorted(tests, key=Test.limit, reverse=True):
        least = work.index(min(work))
        parts[least].append(test)
        work[least] += test.limit()
    return [[test for test in tests if test in part] for part in parts]


def work_dir(build):
    """The folder of modules and logs: in the build folder, or in the cache for an installed lab."""
    if os.path.isdir(os.path.join(build, 'tests')):
        return os.path.join(build, 'lab')
    return os.path.join(cache_dir(), 'work')


def guest_root(kernel, build, tests, own):
    """The initramfs of every guest of a run, apart from /lab/env and /lab/list."""
    root = Initramfs()
    root.busybox()
    for name in ('init', 'serve', 'peer', 'host', 'pull'):
        root.file(os.path.join(LAB, 'guest', name), '/init' if name == 'init' else '/lab/bin/' + name, 0o755)
    more = MORE_MODULES + (LONG_MODULES if any('long' in test.tags for test in tests) else ())
    root.modules(kernel.release, kernel.closure(MODULES + more + tuple(m.name for m in own), own), kernel.built_in)
    for name in TOOLS:
        root.tool(name)
    # libibverbs loads the provider of software RDMA with dlopen.
    for path in glob.glob('/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so'):
        root.program(path, path)
        root.file('/etc/libibverbs.d/rxe.driver', '/etc/libibverbs.d/rxe.driver')
    # And the library loads these.
    for name in ('libibverbs.so.1', 'librdmacm.so.1', 'libcrypto.so.3'):
        path = os.path.join(LIBRARIES, name)
        if os.path.exists(path):
            root.program(path, path)
    root.text('/etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n')
    root.text('/etc/group', 'root:x:0:\nnogroup:x:65534:\n')
    # The emulated machine forwards peer-to-peer transfers; a kernel without P2PDMA cannot find that out.
    root.text('/etc/modprobe.d/strait.conf', 'options strait assume_peers=1\n')
    root.text('/etc/profile', 'export PATH=/lab/bin:/usr/bin:/bin\nPS1="\\h# "\n')
    cli = os.path.join(build, 'strait')
    if not os.path.exists(cli):
        cli = tool('strait') or cli
    if os.path.exists(cli):
        root.program(cli, '/usr/bin/strait')
    for path in filter(os.path.isfile, glob.glob(os.path.join(build, 'examples', 'example-*'))):
        root.program(path, '/usr/bin/' + os.path.basename(path))
    for test in tests:
        root.program(test.path, '/lab/tests/' + test.name)
        if test.word('tool'):
            root.tool(test.word('tool'))
        if test.word('with'):
            path = os.path.join(build, test.word('with'))
            root.program(path, '/lab/with/' + os.path.basename(path))
    for name in ('tap.sh', 'rxe.sh'):
        helper = os.path.join(os.path.dirname(LAB), 'tests', 'lab', name)
        if os.path.exists(helper):
            root.file(helper, '/lab/' + name)
    return root


FOLDER = 'strait-lab.'


def sweep():
    """Remove the folders of runs that were killed."""
    for name in os.listdir(tempfile.gettempdir()):
        match = re.match(re.escape(FOLDER) + r'(\d+)\.', name)
        path = os.path.join(tempfile.gettempdir(), name)
        if match and not os.path.exists(f'/proc/{match.group(1)}') and os.stat(path).st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


class Run:
    """One boot of one or more guests, with a list of tests for the first."""

    def __init__(self, options, kernel, tests, guests, report):
        self.options, self.kernel, self.tests, self.report = options, kernel, tests, report
        self.slow = SLOW.get(kernel.name, 1)
        self.count = guests
        self.machine = f'{kernel.name}/{options.topology}/{options.iommu}' + (f'/{guests}' if guests > 1 else '') + (
            '/drives' if options.drives else '') + ('/noremap' if options.noremap else '') + (
            '/parallel' if options.parallel else '') + ('/alone' if options.alone else '') + (
            f'/{options.part}' if options.part else '')
        self.stopped = self.progress = False
        self.folder = None
        self.guests, self.agents, self.hub, self.cable = [], [], None, None
        self.lab = Program('the lab', self.machine)

    def environment(self, index, role, own):
        ours = [m for m in self.kernel.closure([m.name for m in own], own) if m in own]
        text = {
            'LAB_KERNEL': self.kernel.name, 'LAB_TOPOLOGY': self.options.topology, 'LAB_IOMMU': self.options.iommu,
            'LAB_GUESTS': self.count, 'LAB_INDEX': index, 'LAB_ROLE': role,
            'LAB_NO_P2PDMA': machine.no_p2pdma(self.kernel, self.options),
            'LAB_NO_TRANSLATION': machine.not_translating(self.options),
            'LAB_NO_REMAPPING': machine.not_remapping(self.options),
            'LAB_BAR_SIZE': machine.BAR_SIZE, 'LAB_DRIVE_SIZE': machine.DRIVE_SIZE,
            'LAB_MODULES': ' '.join(name for name in MODULES if name in self.kernel.modules),
            # Modules named *_test are loaded by the tests that use them.
            'LAB_OWN_MODULES': ' '.join(m.name for m in ours if not m.name.endswith('_test') or m in self.options.module),
            'LAB_TEST_MODULES': ' '.join(m.name for m in ours if m.name.endswith('_test') and m not in self.options.module),
            'HARNESS_SLOW': 4 * self.slow,
        }
        return ''.join(f"{key}='{value}'\n" for key, value in text.items())

    def prepare(self, build, role):
        sweep()
        # Not in the build folder: the path of a socket may have 107 characters.
        self.folder = tempfile.mkdtemp(prefix=f'{FOLDER}{os.getpid()}.')
        modules = os.path.join(work_dir(build), 'modules-' + self.kernel.name)
        own = ([] if self.options.plain else self.kernel.build(modules)) + self.options.module
        root = guest_root(self.kernel, build, self.tests, own)
        root.text('/lab/list', ''.join(
            f'{test.name}\t{test.limit() * self.slow}\t{test.words}\n' for test in self.tests))
        # Two guests are joined directly, which loses no frames. The second one listens, as it starts first.
        if self.count == 2:
            self.cable = os.path.join(self.folder, 'cable')
        elif self.count > 2:
            self.hub = Hub(os.path.join(self.folder, 'hub'))
        for index in range(self.count):
            folder = os.path.join(self.folder, f'guest{index}')
            os.makedirs(folder)
            root.text('/lab/env', self.environment(index, role if index == 0 else 'peer', own))
            initrd = os.path.join(folder, 'initrd')
            root.write(initrd)
            self.guests.append(machine.Guest(index, folder, self.kernel, initrd, self.options,
                                             shell=role == 'shell' and index == 0,
                                             network=self.network(index)))

    def network(self, index):
        """The socket of a guest's network, and whether the guest listens on it."""
        if self.cable:
            return self.cable, index == 1
        return (self.hub.path, False) if self.hub else None

    def again(self, test):
        """The command that runs one test on a machine as this one."""
        options, words = self.options, []
        for name, value, default in (('kernel', self.kernel.name, 'stock'), ('topology', options.topology, 'root-ports'),
                                     ('iommu', options.iommu, 'strict')):
            words += [f'--{name}', value] if value != default else []
        for name, given in (('noremap', options.noremap and 'noremap' not in test.tags), ('parallel', options.parallel),
                            ('plain', options.plain), ('long', 'long' in test.tags)):
            words += [f'--{name}'] if given else []
        words += [word for module in options.module for word in ('--module', module.path)]
        command = f'make lab T={shlex.quote(test.name)}'
        return f'{command} LAB="{shlex.join(words)}"' if words else command

    def start(self):
        for guest in reversed(self.guests):
            if self.stopped:
                raise Failed('the run was stopped')
            guest.start()
            self.agents.append(Agent(guest))
            if self.cable and guest.index == 1:
                self.wait_cable(guest)

    def wait_cable(self, guest):
        limit = time.monotonic() + 30
        while not os.path.exists(self.cable):
            if guest.process.poll() is not None or time.monotonic() > limit:
                raise Failed(f'guest {guest.index} does not start: {read(guest.errors)}')
            time.sleep(0.02)

    def shell(self, build):
        try:
            self.prepare(build, 'shell')
            self.start()
            status = self.guests[0].process.wait()
            if status:
                print(read(self.guests[0].errors), end='', file=sys.stderr)
            return 1 if status else 0
        finally:
            self.close()

    def run(self, build):
        start = time.monotonic()
        try:
            self.prepare(build, 'run')
            self.start()
            self.follow()
            self.show('')
            if self.stopped:
                return
            for guest in self.guests:
                guest.stop()
            self.keep(build)
            self.scan()
        finally:
            self.close()
        self.lab.seconds = time.monotonic() - start
        self.report.add(self.lab)

    def stop(self):
        """End the run soon. May be called from another thread."""
        self.stopped = True
        for guest in self.guests:
            guest.stop()

    def close(self):
        for guest in self.guests:
            guest.stop()
        for agent in self.agents:
            agent.stop()
        if self.hub:
            self.hub.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, build):
        """Save the logs of this run in the build folder; those of the last run on such a machine are replaced."""
        folder = os.path.join(work_dir(build), self.machine.replace('/', '-'))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for guest in self.guests:
            for path in (guest.console, guest.report, guest.errors):
                shutil.copy(path, os.path.join(folder, f'guest{guest.index}-{os.path.basename(path)}'))
        self.lab.log = os.path.join(folder, 'guest0-console.log')

    def show(self, what):
        """Show the progress in one line on a terminal."""
        if self.progress:
            sys.stderr.write(f'\r\033[K{what}')
            sys.stderr.flush()

    def follow(self):
        """Read the guest's report until it ends or a deadline passes."""
        guest = self.guests[0]
        limit = time.monotonic() + BOOT_LIMIT * self.slow
        current, lines, pending = None, [], list(self.tests)
        data, leaks = '', None
        self.finished = []
        self.show('starting ...')
        with open(guest.report, encoding='utf-8', errors='replace') as file:
            while True:
                ended = guest.process.poll() is not None
                data += file.read()
                *whole, data = data.split('\n')
                for line in whole:
                    if not line.startswith('@lab '):
                        (leaks if leaks is not None else lines).append(line)
                        continue
                    word, _, rest = line[5:].partition(' ')
                    # Each of these lines starts a new deadline: for unloading, for the search for leaks, for powering off.
                    limit = time.monotonic() + 60 * self.slow
                    if word == 'ready':
                        self.lab.add('the guest starts', Result.PASS)
                    elif word == 'begin':
                        current, lines = pending.pop(0), []
                        self.show(f'{len(self.finished)} of {len(self.tests)} done: {current.name} ...')
                        limit = time.monotonic() + current.limit() * self.slow + 60
                    elif word == 'done':
                        _, status, began, done = rest.split()
                        self.finish(current, lines, int(status), float(done) - float(began))
                        current, lines = None, []
                    elif word == 'broken':
                        self.lab.add(rest, Result.FAIL, lines)
                    elif word == 'unloaded':
                        self.lab.add(f'{rest} unloads', Result.PASS)
                    elif word == 'leaks':
                        leaks = leaks or []
                        if rest == 'end':
                            self.lab.add('no memory is leaked', Result.FAIL if leaks else Result.PASS, leaks[:100])
                            leaks = None
                if ended and not whole:
                    break
                if time.monotonic() > limit and not ended:
                    self.hang(current, lines, pending)
                    return
                time.sleep(0.05)
        if current or pending or '@lab end' not in read(guest.report):
            self.died(current, lines, pending)

    def finish(self, test, lines, status, seconds):
        program = Program(test.name, self.machine)
        program.seconds = seconds
        tap = [line for line in lines if not line.startswith(('# expect-', '# allow-log '))]
        program.parse(tap, status, test.limit() * self.slow)
        program.lines = lines
        program.again = self.again(test)
        self.finished.append(program)

    def hang(self, current, lines, pending):
        self.lab.again = self.again(current) if current else None
        name = f'{current.name} ends' if current else 'the guest goes on'
        self.lab.add(name, Result.FAIL, [*lines[-20:], 'no output until the deadline', *tail(self.guests[0])])
        self.missed(pending)

    def died(self, current, lines, pending):
        self.lab.again = self.again(current) if current else None
        name = f'the guest survives {current.name}' if current else 'the guest powers off at the end'
        self.lab.add(name, Result.FAIL, [*lines[-20:], *tail(self.guests[0])])
        self.missed(pending)

    def missed(self, pending):
        for test in pending:
            self.lab.add(f'{test.name} is run', Result.FAIL, ['the guest had ended before'])

    def scan(self):
        """Compare memory and drive with what the programs expect, and search the kernel logs for errors."""
        guest = self.guests[0]
        for program in self.finished:
            program.log = self.lab.log
            for line in program.lines:
                expected = expectation(guest, line)
                if expected:
                    name, wrong = expected
                    program.add(name, Result.FAIL if wrong else Result.PASS, [wrong] if wrong else [])
        allowed = {program.name: [line.split(' ', 2)[2] for line in program.lines if line.startswith('# allow-log ')]
                   for program in self.finished}
        every = [pattern for patterns in allowed.values() for pattern in patterns]
        clean = True
        for guest in self.guests:
            part, lines = 'start', []
            for line in read(guest.console).splitlines() + ['strait-lab: begin -']:
                match = re.search(r'strait-lab: (?:begin )?(\S+)', line)
                if not match:
                    lines.append(line.rstrip('\r'))
                    continue
                # The log of another guest does not show which program caused a message.
                bad = bad_lines(lines, allowed.get(part, []) if guest.index == 0 else every)
                if bad:
                    clean = False
                    where = f'guest {guest.index}, {part}' if self.count > 1 else part
                    again = [f'run it alone: {self.again(test)}' for test in self.tests if test.name == part]
                    self.lab.add(f'the kernel log is clean: {where}', Result.FAIL, bad + again)
                part, lines = match.group(1), []
        if clean:
            self.lab.add('the kernel log is clean', Result.PASS)
        for program in self.finished:
            self.report.add(program)


def read(path):
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()


def tail(guest):
    errors = [line for line in read(guest.errors).splitlines() if "TCG doesn't support" not in line]
    return (errors[-10:] + ['the end of the kernel log:'] + [line.rstrip('\r') for line in
                                                             read(guest.console).splitlines()[-40:]])
