"""Several launchers of one job on this machine, for the acceptance scripts: start them, read what they say with the time at which
they said it, kill them or their ranks, and look for what they leave behind."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = re.compile(r"step (\d+)/(\d+) ")


def program():
    return os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/release/lockstep"))


def environment(**more):
    """This process's, without any launcher's variables, and with a secret for the job."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return kept | {"LOCKSTEP_TEST_CASES": str(ROOT / "tests/cases"), "LOCKSTEP_JOB_SECRET": "the secret of this acceptance test"} | more


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def stat_fields(pid):
    """State and parent of a process; None when it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError):
        return None


def children_of(parent):
    found = []
    for entry in os.listdir("/proc"):
        fields = stat_fields(entry) if entry.isdigit() else None
        if fields and fields[1] == parent and fields[0] != "Z":
            found.append(int(entry))
    return sorted(found)


def processes_with(text):
    """Living processes whose command line has `text`, but for this one."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        fields = stat_fields(entry)
        try:
            command = pathlib.Path(f"/proc/{entry}/cmdline").read_text()
        except OSError:
            continue
        if fields and fields[0] != "Z" and text in command:
            found.append(int(entry))
    return found


class Agent:
    """One `lockstep run`, and the lines it and its ranks have written: (seconds, text)."""

    def __init__(self, options, command, log, prefix=(), env=None):
        self.lines = []
        self.log = log
        self.process = subprocess.Popen([*prefix, program(), "run", *options, "--", *command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env or environment(),
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))
            self.log.write(f"{time.monotonic():.3f} {self.process.pid} {line}")
            self.log.flush()

    def is_running(self):
        return self.process.poll() is None

    def said(self, text):
        return any(text in line for _, line in self.lines)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self, limit_s):
        """The exit code; kills the process when the time is over."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            return None
        self.reader.join(5)
        return code


def wait_until(limit_s, condition):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def newest_weights(run_dir):
    folders = sorted(path for path in (pathlib.Path(run_dir) / "checkpoints").glob("step-*") if path.suffix == "")
    return (folders[-1] / "model.safetensors").read_bytes() if folders else b""


def steps_said(agents, since=0.0):
    """When which step was printed, in order of time."""
    said = []
    for agent in agents:
        for when, line in list(agent.lines):
            found = STEP.search(line)
            if found and when > since:
                said.append((when, int(found.group(1))))
    return sorted(said)
