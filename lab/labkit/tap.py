# SPDX-License-Identifier: MIT
"""Reading TAP: the results of a test program. scripts/run-tests uses it too."""
import re

RESULT = re.compile(r'^(not )?ok\b(?:\s+(\d+))?(?:\s*-)?\s*(.*?)\s*(?:#\s*(SKIP)\b\s*(.*))?$', re.IGNORECASE)
PLAN = re.compile(r'^1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?', re.IGNORECASE)

# Names of results that stand for more than one test.
WHOLE = 'the whole program'
ITSELF = 'the program itself'


class Result:
    PASS, FAIL, SKIP = 'pass', 'fail', 'skip'

    def __init__(self, name, verdict, detail=()):
        self.name, self.verdict, self.detail = name, verdict, list(detail)


def parse(lines, status, late=0):
    """
    The results of a program that printed @lines and ended with @status; @late is not 0 where it was killed after so many
    seconds. A plan that is not kept and an exit status that no failed test explains are failed tests too.
    """
    results, plan, seen, failing = [], None, 0, None
    for line in lines:
        match = PLAN.match(line)
        if match:
            plan = int(match.group(1))
            if plan == 0 and match.group(2):
                results.append(Result(WHOLE, Result.SKIP, [match.group(2)]))
            continue
        if line.startswith('Bail out!'):
            results.append(Result('bail out', Result.FAIL, [line]))
            continue
        match = RESULT.match(line)
        if match:
            seen += 1
            failing = None
            bad, number, name, skip, reason = match.groups()
            name = name or f'test {number or seen}'
            if bad:
                results.append(Result(name, Result.FAIL))
                failing = results[-1].detail
            elif skip:
                results.append(Result(name, Result.SKIP, [reason or 'no reason given']))
            else:
                results.append(Result(name, Result.PASS))
        elif failing is not None:
            failing.append(line)
    wrong = None
    if late:
        wrong = f'did not end within {late} s'
    elif plan is None:
        wrong = f'no plan; exit status {status}'
    elif plan != seen:
        wrong = f'{seen} results for a plan of {plan}; exit status {status}'
    elif status != 0 and all(result.verdict != Result.FAIL for result in results):
        wrong = f'exit status {status}'
    if wrong:
        results.append(Result(ITSELF, Result.FAIL, list(lines)[-40:] + [wrong]))
    return results
