"""Each folder of be/ includes only from itself and from the folders before it."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ["base", "verbs", "softnic", "memory", "engine", "transport", "rpc", "ps", "sim"]
INCLUDE = re.compile(r'#include ["<]be/(\w+)/')


class LayersTest(unittest.TestCase):
    def test_no_folder_includes_from_a_later_one(self):
        for level, layer in enumerate(LAYERS):
            for path in sorted((ROOT / "be" / layer).rglob("*.[ch]*")):
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    match = INCLUDE.match(line)
                    if match:
                        where = f"{path.relative_to(ROOT)}:{number}: {line}"
                        self.assertIn(match[1], LAYERS[: level + 1], where)


if __name__ == "__main__":
    unittest.main()
