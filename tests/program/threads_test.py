"""What `unmetal` sets for OpenMP's idle threads."""

import os
import pathlib
import subprocess
import time
import unittest

from harness import PROGRAM, ProgramTest

OURS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}


def variables(process):
    text = pathlib.Path(f"/proc/{process.pid}/environ").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


class Threads(ProgramTest):
    def settings(self, **own):
        """OpenMP's settings of a program that was started with these."""
        environment = {name: value for name, value in os.environ.items() if name not in OURS}
        with subprocess.Popen([PROGRAM, "bench", "--filter", "CNNPoolingMax"], env={**environment, **own},
                              stdout=subprocess.DEVNULL) as process:
            end = time.monotonic() + 20
            found = {}
            while time.monotonic() < end and "OMP_WAIT_POLICY" not in found:  # before the second start
                time.sleep(0.05)
                found = {name: value for name, value in variables(process).items() if name in OURS}
            process.kill()
        return found

    def test_idle_threads_sleep_soon(self):
        self.assertEqual(self.settings(), OURS)

    def test_a_user_decides(self):
        self.assertEqual(self.settings(OMP_WAIT_POLICY="active"), {"OMP_WAIT_POLICY": "active"})
        self.assertEqual(self.settings(GOMP_SPINCOUNT="7"), {**OURS, "GOMP_SPINCOUNT": "7"})


if __name__ == "__main__":
    unittest.main()
