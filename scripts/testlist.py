# SPDX-License-Identifier: MIT
"""The test programs of a build directory, and which of them a run takes."""
import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'lab'))

from labkit import suite  # noqa: E402
from labkit.names import chosen  # noqa: E402

# What "# sanitize:" in a list says, by the name of its build directory (scripts/configure).
SANITIZERS = {'asan': 'address,undefined', 'tsan': 'thread'}

# For programs of the suite in one run. The lab itself limits each of them and the start of each machine.
LAB_LIMIT = 14400


class Program:
    """One line of DIR/tests/list.txt; the tags are explained in tests/meson.build."""

    def __init__(self, build, sanitize, source, line):
        self.name, tags, path = line.split('\t')
        self.tags = set() if tags == '-' else set(tags.split(','))
        self.build, self.sanitize, self.source = build, sanitize, source
        # For ninja; a script has none, and may use all that is built.
        self.target = None if os.path.isabs(path) else path
        self.command = [path if os.path.isabs(path) else os.path.join(build, path)]

    def limit(self, default):
        """How many seconds it may take."""
        return next((int(tag[6:]) for tag in self.tags if tag.startswith('limit=')), default)

    def wanted(self, options):
        if options.no_lab and self.name.startswith('lab/'):
            return False
        if 'long' in self.tags and not options.long:
            return False
        if self.sanitize != 'none' and 'release-only' in self.tags:
            return False
        return self.sanitize != 'thread' or 'threaded' in self.tags or (options.long and 'threaded-long' in self.tags)


class LabPrograms(Program):
    """Some programs of the suite in the guests (tests/lab/lab.txt), in one run of the lab."""

    def __init__(self, build, source, tests, options):
        super().__init__(build, 'none', source, f'lab/suite\trelease-only,machines,limit={LAB_LIMIT}\tlab/run')
        self.target = None
        self.tests = tests
        self.command = [os.path.join(source, 'lab', 'run'), 'run', '--tap', '--build', os.path.abspath(build),
                        *(['--long'] if options.long else []), *[test.name for test in tests]]
        if len(tests) == 1:
            self.name = tests[0].name


def sanitizer(build):
    """The sanitizer that a build directory has by its name, or "none"."""
    return SANITIZERS.get(build.rstrip('/').rpartition('-')[2], 'none')


def read(build, as_build=None):
    """
    The programs of @build. With @as_build those that another build directory will have, which need not be configured: the
    lists differ only in the sanitizer.
    """
    sanitize, source, programs = 'none', os.getcwd(), []
    with open(os.path.join(build, 'tests', 'list.txt')) as file:
        for line in file.read().splitlines():
            if line.startswith('# sanitize: '):
                sanitize = sanitizer(as_build) if as_build else line[12:]
            elif line.startswith('# source: '):
                source = line[10:]
            elif line:
                programs.append(Program(as_build or build, sanitize, source, line))
    return programs


def select(programs, options):
    """Those of @programs that the options mean, and the programs of the lab's suite that their patterns name."""
    release = next((p for p in programs if p.sanitize == 'none'), None)
    tests = []
    if release and options.match and not options.no_lab and os.path.exists(f'{release.build}/tests/lab/lab.txt'):
        tests = suite.read_list(release.build)
    names = chosen({p.name for p in programs} | {test.name for test in tests}, options.match)
    found = [p for p in programs if p.name in names and p.wanted(options)]
    # "lab/suite" runs all of them.
    if any(p.name == 'lab/suite' for p in found):
        return found
    tests = [t for t in tests if t.name in names]
    # A program about a module from elsewhere needs that module: lab/run --module.
    if not options.build_only:
        tests = [t for t in tests if not t.modules and ('long' not in t.tags or options.long)]
    return found + ([LabPrograms(release.build, release.source, tests, options)] if tests else [])


def targets(programs, options):
    """What ninja has to build for them, all in one build directory."""
    if not options.match:
        return ['all-tests'] + (['all'] if programs[0].sanitize == 'none' else [])
    found = set()
    for program in programs:
        if isinstance(program, LabPrograms):
            files = [os.path.relpath(test.path, program.build) for test in program.tests]
            files += [test.word('with') for test in program.tests if test.word('with')]
            # A script is used where it is in the source tree.
            found |= {'all', *(file for file in files if not file.startswith('..'))}
        elif program.target:
            found |= {'test-support', program.target}
        else:
            found |= {'all-tests'} | ({'all'} if program.sanitize == 'none' else set())
    return sorted(found)
