"""A program that is killed by SIGKILL before and after each of its calls that change the disk."""

import subprocess
import sys

PROGRAM = """
import os, shutil, signal, sys
from pathlib import Path

{define}

CALLS = {{
    *("open", "write", "flush", "fsync", "close", "mkdir", "link", "rename", "replace"),
    *("unlink", "rmdir"),
}}

def die_at(count):
    def see(frame, event, function):
        nonlocal count
        if event in ("c_call", "c_return") and function.__name__ in CALLS:
            count -= 1
            if count == 0:
                os.write(1, f"{{event}} {{function.__name__}}\\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(see)

place, code, count = Path(sys.argv[1]), -signal.SIGKILL, 0
while code == -signal.SIGKILL:
    count += 1
    victim = place / str(count)
    shutil.copytree(place / "0", victim)
    child = os.fork()
    if not child:
        die_at(count)
        run(victim)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(code)
"""


def killed_at_each_call(place, define):
    """Run `run(victim)`, a function that the text `define` defines, on copies of `place`/0.

    Return each copy with the call at which it was killed; for the last one, which ran to the end,
    "" in place of the call.
    """
    command = [sys.executable, "-c", PROGRAM.format(define=define), place]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    calls = [*done.stdout.splitlines(), ""]
    return [(place / str(count), call) for count, call in enumerate(calls, 1)]
