"""Two members in a process each, driven by lines of JSON: [command, arguments...] and answers."""

import json
import os
import select
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.candidates import MALLOCS
from benchmarks.merges.contract import (
    TIMEOUT_S,
    Member,
    MemberModule,
    Setting,
    check_everything,
    merge_at,
)

LEAD_S = 0.02  # from the command to the start of a merge


class Processes:
    """Both processes; the setting's "variables" are environment variables."""

    def __init__(self, module: str, count: int, setting: Setting) -> None:
        self._ends = ExitStack()
        folder = self._ends.enter_context(TemporaryDirectory(prefix="merges-"))
        variables = os.environ | setting.get("variables", {}) | {"GRPC_VERBOSITY": "ERROR"}
        variables["GLIBC_TUNABLES"] = MALLOCS[setting.get("malloc", "default")]
        self._processes = [
            self._start([module, folder, str(place), str(count), json.dumps(setting)], variables)
            for place in (0, 1)
        ]
        self.ask("connect")
        self.ask("check", 1)
        self._number = 1

    def _start(self, flags: list[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.merges.processes", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=Path(__file__).parents[2],
            env=variables,
        )
        self._ends.enter_context(process)
        self._ends.callback(process.kill)
        return process

    def ask(self, *command: Any) -> list[Any]:
        """Send a command to both, and wait for their answers."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(json.dumps(command).encode() + b"\n")
        answers = []
        for process in self._processes:
            assert process.stdout
            ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
            line = process.stdout.readline() if ready else b""
            if not line:
                raise RuntimeError(f"expected an answer to {command[0]}; see the error above")
            answers.append(json.loads(line))
        return answers

    def merge(self, number: int) -> float:
        """See `contract.Group`."""
        return self._timed("merge", number)

    def transfer(self, nbytes: int) -> float:
        """Seconds of a transfer of `nbytes` in both directions at the same time."""
        return self._timed("transfer", nbytes)

    def _timed(self, *command: Any) -> float:
        at = time.monotonic() + LEAD_S
        return float(max(self.ask(*command, at))) - at

    def close(self) -> None:
        """See `contract.Group`."""
        self._ends.close()


def answer(member: Member, place: int, command: str, arguments: list[Any]) -> Any:
    """Do what one line says."""
    if command == "connect":
        member.connect()
    elif command == "check":
        check_everything(member, place, *arguments)
    elif command == "merge":
        return merge_at(member, place, *arguments)
    elif command == "transfer":
        nbytes, at = arguments
        while (rest := at - time.monotonic()) > 0.0:
            time.sleep(rest)
        member.transfer(nbytes)  # type: ignore[attr-defined]  # of nixl_writes only
        return time.monotonic()
    return None


def main() -> None:
    """One of the two processes."""
    name, folder, place, count, setting = sys.argv[1:]
    module: MemberModule = import_module(name)
    member = module.Member(Path(folder), int(place), int(count), json.loads(setting))
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(answer(member, int(place), command, arguments)), flush=True)
    os._exit(0)  # threads of libraries may still run


if __name__ == "__main__":
    main()
