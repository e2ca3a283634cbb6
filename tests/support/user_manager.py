"""A real systemd user manager with a home of its own, in a mount namespace and a control group of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from burnish.adapters.hosts.fetch import cache_dir
from tests.support.execute import execute
from tests.support.patience import within

SYSTEMD = Path("/lib/systemd/systemd")
LIMIT_S = 60.0
# systemd wants its control groups at the usual place, and a machine that systemd has booted.
SCRIPT = """
set -e
mount -t tmpfs none /run
mkdir -p /run/systemd/system
umount -l /sys/fs/cgroup || true
mount -t cgroup2 none /sys/fs/cgroup
exec "$0" --user --log-target=null
"""


class NoManager(RuntimeError):
    """This machine can't run one for a test."""


@dataclass
class UserManager:
    home: Path
    runtime: Path
    group: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "DBUS_SESSION_BUS_ADDRESS": "",
            # The small model needn't be fetched again.
            "BURNISH_CACHE_DIR": str(cache_dir()),
        }

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        done = execute("systemctl", "--user", *arguments, env=self.env, limit_s=2 * LIMIT_S)
        assert not (check and done.returncode), done.stderr
        return done.stdout

    def log_in(self) -> None:
        """Start the manager, and with it all that is enabled. Raises NoManager."""
        join = f'echo $$ > \'{self.group}/cgroup.procs\'; exec unshare --mount --cgroup sh -c "$1" "$2"'
        self.process = subprocess.Popen(
            ["sh", "-c", join, "sh", SCRIPT, str(SYSTEMD)],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.runtime)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + within(LIMIT_S)
        while not self.systemctl("show", "--property=Version", check=False):
            if self.process.poll() is not None or time.monotonic() > deadline:
                assert self.process.stderr
                raise NoManager(f"systemd --user doesn't run here: {self.process.stderr.read().decode()}")
            time.sleep(0.01)

    def log_out(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(within(2 * LIMIT_S))
        if self.process and self.process.stderr:
            self.process.stderr.close()

    def close(self) -> None:
        self.log_out()
        (self.group / "cgroup.kill").write_text("1")
        for folder, _, _ in os.walk(self.group, topdown=False):
            with suppress(OSError):  # a process that was killed takes a moment to go
                Path(folder).rmdir()
        shutil.rmtree(self.runtime)
        shutil.rmtree(self.home)


@contextmanager
def user_manager() -> Iterator[UserManager]:
    if not SYSTEMD.exists() or os.getuid() != 0:
        raise NoManager("needs systemd, and root to give it a namespace of its own")
    # Not in pytest's folders: the path of a socket must be short.
    home, runtime = (Path(tempfile.mkdtemp(prefix="burnish-")) for _ in range(2))
    group = _control_group()
    manager = UserManager(home, runtime, group)
    try:
        manager.log_in()
        yield manager
    finally:
        manager.close()


def _control_group() -> Path:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    try:
        place = next(Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2")
        group = Path(tempfile.mkdtemp(prefix="burnish-test-", dir=place))
    except (StopIteration, OSError) as error:
        raise NoManager(f"needs a control group to itself: {error}") from error
    return group
