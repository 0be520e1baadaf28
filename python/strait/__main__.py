# SPDX-License-Identifier: MIT
"""python -m strait: the command that the wheel brings along, or what is installed where there is none."""
import os
import shutil
import sys
from typing import List, Optional

from . import _lib
from ._context import context, devices
from .errors import StraitError


def command() -> Optional[str]:
    """The strait command: that of the wheel, or one in PATH that is not this entry point."""
    beside = os.path.join(_lib.bundled(), 'bin', 'strait')
    if os.path.exists(beside):
        return beside
    found = shutil.which('strait')
    if found is None or os.path.realpath(found) == os.path.realpath(sys.argv[0]):
        return None
    with open(found, 'rb') as file:
        return found if file.read(4) == b'\x7fELF' else None


def report() -> int:
    """Print what is installed and which devices there are."""
    try:
        print(f'strait {_lib.version()}, {os.path.dirname(os.path.abspath(__file__))}')
        for name in devices():
            info = context().device_info(context().device(name))
            print(f'  {name:8s} {info.model.decode(errors="replace")}, {info.mem_total / 2**30:.1f} GiB')
    except StraitError as error:
        print(f'strait: {error.strerror}', file=sys.stderr)
        return 1
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    """Run the command with the arguments of this program."""
    arguments = sys.argv[1:] if argv is None else argv
    program = command()
    if program is not None:
        os.execv(program, [program] + arguments)
    if arguments and arguments != ['info']:
        print('strait: the strait command is not installed: only "python -m strait info" works without it', file=sys.stderr)
        return 2
    return report()


if __name__ == '__main__':
    sys.exit(main())
