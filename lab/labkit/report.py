# SPDX-License-Identifier: MIT
"""What came of a run: results of programs, and what the kernel had to say."""
import json
import re
import sys

RESULT = re.compile(r'^(not )?ok\b(?:\s+(\d+))?(?:\s*-)?\s*(.*?)\s*(?:#\s*(SKIP)\b\s*(.*))?$', re.IGNORECASE)
PLAN = re.compile(r'^1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?', re.IGNORECASE)

BAD_LOG = re.compile(
    r'DMAR: \[|DMAR: .*[Ff]ault|WARNING|\bBUG\b|KASAN|UBSAN|lockdep|kmemleak|possible (recursive|circular|irq)|INFO: task|'
    r'INFO: rcu|INFO: trying to register|\bOops\b|Kernel panic|general protection|DMA-API: |refcount_t: |soft lockup|'
    r'hung task|ODEBUG|suspicious RCU|inconsistent lock state|bad unlock balance|held lock freed|unable to handle|'
    r'Unknown symbol|disagrees about version|scheduling while atomic|sleeping function called|list_(add|del) corruption|'
    r'segfault at|trap invalid opcode|nobody cared')
# What kernels that look for mistakes say of themselves while they start.
GOOD_LOG = re.compile(
    r'kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning thread started)|'
    r'RCU lockdep checking is enabled|lockdep (is|debugging)|lockdep_subclass|LOCKDEP|DMA-API: (preallocated|debugging enabled)|'
    r'WARNING: memory_hotplug|You are using|Command line:')


class Result:
    PASS, FAIL, SKIP = 'pass', 'fail', 'skip'

    def __init__(self, name, verdict, detail=()):
        self.name, self.verdict, self.detail = name, verdict, list(detail)


class Program:
    """The results of one program in a guest, or of the lab itself."""

    def __init__(self, name, machine):
        self.name, self.machine, self.results, self.seconds = name, machine, [], 0.0

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
        self.style, self.programs, self.number = style, [], 0

    def say(self, text):
        """A line for those who watch. Not for those who parse."""
        if self.style == 'tap':
            text = '# ' + text
        print(text, file=sys.stderr if self.style == 'json' else sys.stdout, flush=True)

    def add(self, program):
        self.programs.append(program)
        if self.style == 'tap':
            self.add_tap(program)
            return
        word = 'FAIL' if program.count(Result.FAIL) else 'ok'
        self.say(f'{word:4} {program.machine:18} {program.name:32} {program.count(Result.PASS):4} passed '
                 f'{program.count(Result.FAIL):3} failed {program.count(Result.SKIP):3} skipped {program.seconds:7.1f} s')
        for result in program.results:
            if result.verdict == Result.FAIL:
                self.say(f'     not ok: {result.name}')
                for line in result.detail:
                    self.say(f'       {line}')

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
                    reasons.setdefault(' '.join(result.detail), []).append(f'{program.machine} {program.name} {result.name}')
        if reasons:
            print('\nSkipped:')
            for reason, names in sorted(reasons.items()):
                more = f' and {len(names) - 1} more' if len(names) > 1 else ''
                print(f'  {reason}: {names[0]}{more}')
        print(f'\n{passed} passed, {failed} failed, {skipped} skipped', flush=True)
