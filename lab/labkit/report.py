# SPDX-License-Identifier: MIT
"""What came of a run: results of programs, and what the kernel had to say."""
import json
import re
import sys
import threading

RESULT = re.compile(r'^(not )?ok\b(?:\s+(\d+))?(?:\s*-)?\s*(.*?)\s*(?:#\s*(SKIP)\b\s*(.*))?$', re.IGNORECASE)
PLAN = re.compile(r'^1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?', re.IGNORECASE)

BAD_LOG = re.compile('|'.join((
    # The IOMMU has refused a device something.
    r'DMAR: \[', r'DMAR: .*[Ff]ault',
    r'WARNING', r'\bBUG\b', r'\bOops\b', r'Kernel panic', r'general protection', r'unable to handle', r'nobody cared',
    # Memory and locks, on kernels that watch them.
    r'KASAN', r'UBSAN', r'kmemleak', r'DMA-API: ', r'ODEBUG', r'refcount_t: ', r'list_(add|del) corruption',
    r'lockdep', r'possible (recursive|circular|irq)', r'inconsistent lock state', r'bad unlock balance',
    r'held lock freed', r'suspicious RCU', r'scheduling while atomic', r'sleeping function called',
    # What does not go on.
    r'INFO: task', r'INFO: rcu', r'INFO: trying to register', r'soft lockup', r'hung task',
    # Modules that do not fit, programs that crash.
    r'Unknown symbol', r'disagrees about version', r'segfault at', r'trap invalid opcode')))
# What kernels that look for mistakes say of themselves while they start.
GOOD_LOG = re.compile('|'.join((
    r'kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning thread started)',
    r'RCU lockdep checking is enabled', r'DMA-API: (preallocated|debugging enabled)', r'Command line:')))


class Result:
    PASS, FAIL, SKIP = 'pass', 'fail', 'skip'

    def __init__(self, name, verdict, detail=()):
        self.name, self.verdict, self.detail = name, verdict, list(detail)


class Program:
    """The results of one program in a guest, or of the lab itself."""

    def __init__(self, name, machine):
        self.name, self.machine, self.results, self.seconds, self.log = name, machine, [], 0.0, None

    def add(self, name, verdict, detail=()):
        self.results.append(Result(name, verdict, detail))

    def count(self, verdict):
        return sum(result.verdict == verdict for result in self.results)

    def parse(self, lines, status, limit):
        """Read TAP. Anything that is not as it should be counts as a failed test."""
        plan, seen, failing = None, 0, None
        for line in lines:
            match = PLAN.match(line)
            if match:
                plan = int(match.group(1))
                if plan == 0 and match.group(2):
                    self.add('the whole program', Result.SKIP, [match.group(2)])
                continue
            if line.startswith('Bail out!'):
                self.add('bail out', Result.FAIL, [line])
                continue
            match = RESULT.match(line)
            if match:
                seen += 1
                failing = None
                bad, number, name, skip, reason = match.groups()
                name = name or f'test {number or seen}'
                if bad:
                    self.add(name, Result.FAIL)
                    failing = self.results[-1].detail
                elif skip:
                    self.add(name, Result.SKIP, [reason or 'no reason given'])
                else:
                    self.add(name, Result.PASS)
            elif failing is not None:
                failing.append(line)
        wrong = None
        if status == 137:
            wrong = f'did not end within {limit} s'
        elif plan is None:
            wrong = f'no plan; exit status {status}'
        elif plan != seen:
            wrong = f'{seen} results for a plan of {plan}; exit status {status}'
        elif status != 0 and not self.count(Result.FAIL):
            wrong = f'exit status {status}'
        if wrong:
            self.add('the program itself', Result.FAIL, list(lines[-40:]) + [wrong])


def bad_lines(lines, allowed):
    """Lines of a kernel log that must not be there, each with what follows it."""
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
        """A line for those who watch. Not for those who parse."""
        if self.style == 'tap':
            text = '# ' + text
        print(text, file=sys.stderr if self.style == 'json' else sys.stdout, flush=True)

    def add(self, program):
        """From any thread."""
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
        for result in program.results:
            if result.verdict == Result.FAIL:
                self.say(f'     not ok: {result.name}')
                for line in result.detail:
                    self.say(f'       {line}')
        if failed and program.log:
            self.say(f'     kernel log: {program.log}')

    def add_tap(self, program):
        for result in program.results:
            self.number += 1
            word = 'not ok' if result.verdict == Result.FAIL else 'ok'
            tail = f' # SKIP {" ".join(result.detail)}' if result.verdict == Result.SKIP else ''
            name = f'{program.machine}: {program.name}: {result.name}'.replace('#', '')
            print(f'{word} {self.number} - {name}{tail}')
            if result.verdict == Result.FAIL:
                for line in result.detail:
                    print(f'# {line}')
                if program.log:
                    print(f'# kernel log: {program.log}')
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
                              'log': program.log,
                              'results': [vars(result) for result in program.results]} for program in self.programs],
            }, indent=2), flush=True)
        else:
            self.end_text(passed, failed, skipped)
        if failed:
            return 1
        return 0 if passed or skipped else 1

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
        print(f'\n{passed} passed, {failed} failed, {skipped} skipped', flush=True)
