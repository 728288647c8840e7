"""The README's programs are the ones in examples/, which the build compiles."""

import pathlib
import unittest

ROOT = pathlib.Path(__file__).parents[2]


class ReadmeTest(unittest.TestCase):
    def test_programs_of_the_readme_are_the_compiled_ones(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for path in sorted((ROOT / "examples").glob("*.cc")):
            block = f"```cpp\n{path.read_text(encoding='utf-8')}```"
            self.assertIn(block, readme, f"{path.name} differs from the README")


if __name__ == "__main__":
    unittest.main()
