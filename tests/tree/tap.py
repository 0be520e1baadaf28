# SPDX-License-Identifier: MIT
"""Shared by the tests of the tree: the folders, the project's files, and TAP output."""
import os
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
SOURCE = os.environ.get('STRAIT_SOURCE') or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('STRAIT_BUILD') or os.path.join(SOURCE, 'build')
sys.path.insert(0, os.path.join(SOURCE, 'scripts'))


class Skip(Exception):
    """Raised by a check that cannot run here; its text is the reason."""


def files(*suffixes, under=()):
    """The project's files, as paths from its root: those that git tracks or would add."""
    command = ['git', '-C', SOURCE, 'ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', *under]
    try:
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split('\0')
    except (OSError, subprocess.CalledProcessError):
        names = []
        for top in under or ['.']:
            for folder, folders, inside in os.walk(os.path.join(SOURCE, top)):
                folders[:] = [f for f in folders if f != '.git' and not f.startswith('build')]
                names += [os.path.relpath(os.path.join(folder, f), SOURCE) for f in inside]
    return sorted({n for n in names
                   if n and (not suffixes or n.endswith(suffixes)) and os.path.isfile(os.path.join(SOURCE, n))})


def read(name, root=SOURCE):
    with open(os.path.join(root, name), errors='replace') as file:
        return file.read()


def run(*command, **options):
    """Run a program: (exit status, what it printed)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    return done.returncode, done.stdout.decode(errors='replace')


def main(checks):
    """Each check is (name, function); the function returns a list of errors, or raises Skip."""
    print(f'1..{len(checks)}', flush=True)
    failed = 0
    for number, (name, check) in enumerate(checks, 1):
        try:
            problems = check()
        except Skip as reason:
            print(f'ok {number} - {name} # SKIP {reason}', flush=True)
            continue
        except Exception:  # the other checks still run
            problems = [traceback.format_exc()]
        print(f'{"not " if problems else ""}ok {number} - {name}')
        for problem in problems:
            for line in problem.splitlines():
                print(f'# {line}')
        sys.stdout.flush()
        failed += bool(problems)
    sys.exit(1 if failed else 0)
