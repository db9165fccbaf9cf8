"""OpenMP's threads: what `unmetal` sets for the idle ones, and what a user sets."""

import os
import pathlib
import subprocess
import time
import unittest

from harness import PROGRAM, ProgramTest, run

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

    def test_fewer_threads_than_asked_for_are_enough(self):
        # OMP_DYNAMIC gives no more threads than there are processors, less the load.
        many = str(2 * os.cpu_count() + 2)
        arguments = ["conform", "--filter", "CNNConvolutionGradient", "--cases", "3", "--threads", many]
        for own in ({"OMP_THREAD_LIMIT": "1"}, {"OMP_THREAD_LIMIT": "2"}, {"OMP_DYNAMIC": "true"}):
            with self.subTest(own=own):
                done = run(*arguments, env={**os.environ, **own})
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)


if __name__ == "__main__":
    unittest.main()
