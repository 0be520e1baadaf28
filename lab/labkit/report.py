# SPDX-License-Identifier: MIT
"""The report of a run: results of programs, and messages of the kernel that are failures."""
import json
import re
import sys
import threading

from . import tap
from .tap import Result

BAD_LOG = re.compile('|'.join((
    # The IOMMU has refused a device something.
    r'DMAR: \[', r'DMAR: .*[Ff]ault',
    r'WARNING', r'\bBUG\b', r'\bOops\b', r'Kernel panic', r'general protection', r'unable to handle', r'nobody cared',
    # Reports of memory and lock checkers.
    r'KASAN', r'UBSAN', r'kmemleak', r'DMA-API: ', r'ODEBUG', r'refcount_t: ', r'list_(add|del) corruption',
    r'lockdep', r'possible (recursive|circular|irq)', r'inconsistent lock state', r'bad unlock balance',
    r'held lock freed', r'suspicious RCU', r'scheduling while atomic', r'sleeping function called',
    # Tasks and processors that are stuck.
    r'INFO: task', r'INFO: rcu', r'INFO: trying to register', r'soft lockup', r'hung task',
    # Modules that do not load, programs that crash.
    r'Unknown symbol', r'disagrees about version', r'segfault at', r'trap invalid opcode')))
# Messages of the checkers themselves while the kernel starts; and a race of the scheduler's own timers (dl_task_timer() of
# Linux 7.2) that shows where emulated processors stand still for long. No module here has such a timer.
GOOD_LOG = re.compile('|'.join((
    r'WARNING: kernel/time/hrtimer\.c:\d+ at hrtimer_forward\+',
    r'kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning thread started)',
    r'RCU lockdep checking is enabled', r'DMA-API: (preallocated|debugging enabled)', r'Command line:')))


# The exit status of a program that was killed by SIGKILL, as a shell gives it.
KILLED = 137


class Program:
    """The results of one program in a guest, or of the lab itself."""

    def __init__(self, name, machine):
        self.name, self.machine, self.results, self.seconds = name, machine, [], 0.0
        # For a failure: the console's log, and the command that runs this program alone.
        self.log, self.again = None, None

    def add(self, name, verdict, detail=()):
        self.results.append(Result(name, verdict, detail))

    def count(self, verdict):
        return sum(result.verdict == verdict for result in self.results)

    def pointers(self):
        """For a reader of a failure: what to look at, and what to type."""
        return ([f'console log: {self.log}'] if self.log else []) + ([f'run it alone: {self.again}'] if self.again else [])

    def parse(self, lines, status, limit):
        """The results that its output says. The guest kills a program that takes longer than @limit seconds."""
        self.results += tap.parse(lines, status, limit if status == KILLED else 0)


def bad_lines(lines, allowed):
    """The lines of a kernel log that report an error, each with the 29 lines after it."""
    found = []
    patterns = [re.compile(pattern) for pattern in allowed]
    skip = 0
    for number, line in enumerate(lines):
        if skip:
            skip -= 1
        elif BAD_LOG.search(line) and not GOOD_LOG.search(line) and not any(p.search(line) for p in patterns):
            found += lines[number:number + 30]
            skip = 29
    return found


class Report:
    def __init__(self, style):
        self.style, self.programs, self.number, self.lock = style, [], 0, threading.Lock()

    def say(self, text):
        """A line for a reader at a terminal; programs read the report itself."""
        print(text, file=sys.stderr if self.style == 'json' else sys.stdout, flush=True)

    def add(self, program):
        """Add the results of a program and print them. May be called from any thread."""
        with self.lock:
            self.programs.append(program)
            if self.style == 'tap':
                self.add_tap(program)
            else:
                self.add_text(program)

    def add_text(self, program):
        passed, failed, skipped = (program.count(v) for v in (Result.PASS, Result.FAIL, Result.SKIP))
        word = 'FAIL' if failed else 'ok'
        self.say(f'{word:4} {program.machine:24} {program.name:28} {passed:4} passed {failed:3} failed {skipped:3} skipped '
                 f'{program.seconds:7.1f} s')
        for line in self.failures(program):
            self.say(line)

    @staticmethod
    def failures(program):
        """The failed tests of a program in full, with the log to read and the command to repeat them."""
        lines = []
        for result in program.results:
            if result.verdict == Result.FAIL:
                lines.append(f'     not ok: {result.name}')
                lines += [f'       {line}' for line in result.detail]
        return lines + [f'     {line}' for line in program.pointers()] if lines else []

    def add_tap(self, program):
        for result in program.results:
            self.number += 1
            word = 'not ok' if result.verdict == Result.FAIL else 'ok'
            tail = f' # SKIP {" ".join(result.detail)}' if result.verdict == Result.SKIP else ''
            name = f'{program.machine}: {program.name}: {result.name}'.replace('#', '')
            print(f'{word} {self.number} - {name}{tail}')
            if result.verdict == Result.FAIL:
                for line in result.detail + program.pointers():
                    print(f'# {line}')
        sys.stdout.flush()

    def total(self, verdict):
        return sum(program.count(verdict) for program in self.programs)

    def end(self):
        passed, failed, skipped = (self.total(v) for v in (Result.PASS, Result.FAIL, Result.SKIP))
        if self.style == 'tap':
            print(f'1..{self.number}', flush=True)
        elif self.style == 'json':
            print(json.dumps({
                'passed': passed, 'failed': failed, 'skipped': skipped,
                'programs': [{'name': program.name, 'machine': program.machine, 'seconds': round(program.seconds, 3),
                              'log': program.log, 'again': program.again,
                              'results': [vars(result) for result in program.results]} for program in self.programs],
            }, indent=2), flush=True)
        else:
            self.end_text(passed, failed, skipped)
        if failed:
            return 1
        return 0 if passed or skipped else 1

    # Failures are repeated at the end: where only the end of a log is kept, it has all of them.
    def end_text(self, passed, failed, skipped):
        reasons = {}
        for program in self.programs:
            for result in program.results:
                if result.verdict == Result.SKIP:
                    name = f'{program.machine} {program.name} {result.name}'
                    reasons.setdefault(' '.join(result.detail), []).append(name)
        if reasons:
            print('\nSkipped:')
            for reason, names in sorted(reasons.items()):
                more = f' and {len(names) - 1} more' if len(names) > 1 else ''
                print(f'  {reason}: {names[0]}{more}')
        if failed:
            print('\nFailed:')
            for program in self.programs:
                if program.count(Result.FAIL):
                    print(f'  {program.machine} {program.name}')
                    for line in self.failures(program):
                        print(line)
        print(f'\n{passed} passed, {failed} failed, {skipped} skipped', flush=True)
