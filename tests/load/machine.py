"""What a process costs, read from the kernel. Linux only."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PRIORITY = -10
_CORES = sorted(os.sched_getaffinity(0))
PINNED = len(_CORES) > 1


def pin(side: int) -> None:
    """Keep this process, and what it starts from now on, on the first core or on the second, where there are two."""
    if PINNED:
        os.sched_setaffinity(0, {_CORES[side]})


def speed() -> float:
    """Millions of small steps of Python in a second of CPU on the product's core, the best of five looks.

    For comparing runs: where two cores share one, or a neighbour takes the caches, a second of CPU does less.
    """
    pin(0)
    times = []
    for _ in range(5):
        began = time.process_time()
        sum(n * n for n in range(100_000))
        times.append(time.process_time() - began)
    pin(1)
    return 0.1 / min(times)


class Processes:
    """A process with its children, those that have ended included."""

    def __init__(self, root: int, *, alone: bool = False) -> None:
        self.root = root
        self._alone = alone

    def pids(self) -> list[int]:
        if self._alone:
            return [self.root]
        found, look = [], [self.root]
        while look:
            pid = look.pop()
            found.append(pid)
            with suppress(OSError):
                look += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def go_first(self) -> None:
        """Before whatever else this machine does, where we may say so: as root."""
        for pid in self.pids():
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, _PRIORITY)
                # Postgres gives each backend a session of its own, and between sessions only this counts.
                Path(f"/proc/{pid}/autogroup").write_text(str(_PRIORITY))

    def cpu(self) -> float:
        """Seconds, to the microsecond for what is running; what ended is known in hundredths."""
        ended = 0 if self._alone else sum(_stat(self.root)[15:17])
        return sum(map(_cpu_of, self.pids())) + ended / _TICKS

    def system_cpu(self) -> float:
        """Seconds of these spent inside the kernel, in hundredths."""
        return sum(_stat(pid)[14] for pid in self.pids()) / _TICKS

    def memory(self) -> float:
        """Resident, in MB."""
        return sum(_status(pid, "VmRSS") for pid in self.pids())

    def peak_memory(self) -> float:
        """Since `forget_peak`, in MB."""
        return sum(_status(pid, "VmHWM") for pid in self.pids())

    def forget_peak(self) -> None:
        for pid in self.pids():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")


def _cpu_of(pid: int) -> float:
    # The clock of another process, as clock_getcpuclockid(3) makes its number.
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _stat(pid: int) -> list[int]:
    """The numbers of proc(5), so that the index here is the one there less one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return [0] * 52
    return [pid, 0, 0, *map(int, fields[1:])]


def _status(pid: int, name: str) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    return 0.0


def _busy(side: int) -> float:
    """Seconds for which a core did anything, for whomever."""
    core = _CORES[side if PINNED else 0]
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, line.split()[1:9])
            return (user + nice + system + irq + softirq + steal) / _TICKS
    return 0.0


@dataclass
class Meter:
    """`with Meter({"web": …}) as meter: …`: CPU seconds by name, wall seconds, and how busy others kept the cores."""

    watched: dict[str, Processes]
    cpu: dict[str, float] = field(default_factory=dict)
    seconds: float = 0
    foreign: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> "Meter":
        for watched in self.watched.values():
            watched.go_first()
        self._before = {name: watched.cpu() for name, watched in self.watched.items()}
        self._busy = [_busy(side) for side in _SIDES]
        self._began = time.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        self.seconds = time.monotonic() - self._began
        self.cpu = {name: watched.cpu() - self._before[name] for name, watched in self.watched.items()}
        for side, names in _SIDES.items():
            ours = sum(self.cpu.get(name, 0) for name in names)
            share = (_busy(side) - self._busy[side] - ours) / max(self.seconds, 1e-9)
            self.foreign[side] = min(max(share, 0.0), 1.0)

    @property
    def product(self) -> float:
        return self.cpu["web"] + self.cpu["database"]


_SIDES = {0: ("web", "database"), 1: ("engine", "client")}
