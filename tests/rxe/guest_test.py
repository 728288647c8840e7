"""tests/rxe/guest: what comes out of it, and that nothing stays behind."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GUEST = pathlib.Path(__file__).with_name("guest")
NO_GUEST = 77
PATIENCE_SECONDS = 100


class GuestTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.temporary = folder.name

    def start(self, *arguments):
        return subprocess.Popen([GUEST, *arguments], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.PIPE, start_new_session=True,
                                env=os.environ | {"TMPDIR": self.temporary})

    def run_guest(self, *arguments):
        guest = self.start("--timeout", str(PATIENCE_SECONDS), *arguments)
        out, err = guest.communicate()
        if guest.returncode == NO_GUEST:
            print(err, file=sys.stderr)
            os._exit(NO_GUEST)  # ctest shows it as skipped
        self.assert_nothing_is_left(guest)
        return guest.returncode, out, err

    def processes(self, guest):
        """Those of its session that live."""
        listed = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(guest.pid)],
                                capture_output=True, text=True, check=False).stdout
        return [line for line in listed.splitlines() if not line.startswith("Z")]

    def assert_nothing_is_left(self, guest):
        end = time.monotonic() + PATIENCE_SECONDS
        while (left := self.processes(guest)) and time.monotonic() < end:
            pass  # killed with its parent, but not yet gone
        self.assertEqual(left, [])
        self.assertEqual(os.listdir(self.temporary), [])

    def test_output_and_exit_status_are_the_commands(self):
        written = pathlib.Path(self.temporary, "written")
        status, out, err = self.run_guest(
            f"pwd; cat /sys/class/infiniband/rxe0/ports/1/gids/1; echo wrong >&2;"
            f" echo $RXE_HOST $RXE_ADDRESS_0 $RXE_DEVICE; touch {written}; ls {written}; exit 3")
        self.assertEqual(status, 3)
        self.assertEqual(out.splitlines(), [os.getcwd(), "0000:0000:0000:0000:0000:ffff:0a00:0001",
                                            "0 10.0.0.1 dummy0", str(written)])
        self.assertIn("wrong\n", err)
        self.assertFalse(written.exists())

    def test_a_guest_that_panics_shows_its_kernel_log(self):
        status, out, err = self.run_guest("echo before; echo c >/proc/sysrq-trigger; echo after")
        self.assertEqual((status, out), (125, "before\n"))
        self.assertIn("guest 0: ended early", err)
        self.assertIn("Kernel panic", err)

    def test_a_guest_that_is_late_is_ended(self):
        guest = self.start("--hosts", "2", "--timeout", "0.5", "true")
        _, err = guest.communicate()
        if guest.returncode != NO_GUEST:
            self.assertEqual(guest.returncode, 124)
            self.assertIn("guest 1: timed out", err)
        self.assert_nothing_is_left(guest)

    def test_signals_end_the_guest_too(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number):
                guest = self.start("sleep 1000")
                while guest.poll() is None and "qemu" not in str(self.processes(guest)):
                    pass
                guest.send_signal(number)
                guest.communicate()
                if guest.returncode != NO_GUEST:
                    self.assertIn(guest.returncode, (128 + number, -number))
                self.assert_nothing_is_left(guest)


if __name__ == "__main__":
    unittest.main()
