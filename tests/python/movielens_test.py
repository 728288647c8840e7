"""scripts/movielens: the reader of R's serialisation, on objects written by hand, and the export."""

import gzip
import importlib.machinery
import importlib.util
import pathlib
import struct
import tempfile
import unittest
import zlib

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/movielens"
LOADER = importlib.machinery.SourceFileLoader("movielens", str(SCRIPT))
movielens = importlib.util.module_from_spec(importlib.util.spec_from_loader("movielens", LOADER))
LOADER.exec_module(movielens)

IS_OBJECT, HAS_ATTRIBUTES, HAS_TAG = 0x100, 0x200, 0x400
UTF8, LATIN1 = 1 << 15, 1 << 14
NIL = struct.pack(">i", 254)
NA_STRING = struct.pack(">ii", 9, -1)
HEADER_2 = b"X\n" + struct.pack(">3i", 2, 0x30602, 0x20300)
HEADER_3 = b"X\n" + struct.pack(">4i", 3, 0x40101, 0x30500, 5) + b"UTF-8"


def chars(text, flag=UTF8, encoding="utf-8"):
    data = text.encode(encoding)
    return struct.pack(">ii", 9 | flag, len(data)) + data


def symbol(name):
    return struct.pack(">i", 1) + chars(name)


def reference(index):
    return struct.pack(">i", index << 8 | 255)


def attributes(*tags_and_values):
    cells = [struct.pack(">i", 2 | HAS_TAG) + tag + value for tag, value in tags_and_values]
    return b"".join(cells) + NIL


def vector(kind, length, body, attrs=b""):
    return struct.pack(">ii", kind | (HAS_ATTRIBUTES if attrs else 0), length) + body + attrs


def integers(*values, attrs=b""):
    return vector(13, len(values), struct.pack(f">{len(values)}i", *values), attrs)


def reals(*values):
    return vector(14, len(values), struct.pack(f">{len(values)}d", *values))


def strings(*texts):
    return vector(16, len(texts), b"".join(map(chars, texts)))


def read(item, header=HEADER_3):
    return movielens.RReader(header + item).read()


class RReaderTest(unittest.TestCase):
    def test_reads_both_versions_of_the_header(self):
        self.assertEqual(read(integers(7), HEADER_2).values, [7])
        self.assertEqual(read(integers(7), HEADER_3).values, [7])

    def test_reads_integers_and_their_missing_value(self):
        self.assertEqual(read(integers(1, -2, -(2**31))).values, [1, -2, None])

    def test_reads_reals(self):
        self.assertEqual(read(reals(2.5, -1e300)).values, [2.5, -1e300])

    def test_reads_strings_in_their_encodings(self):
        body = chars("Amélie") + chars("Léon", LATIN1, "latin-1") + NA_STRING
        self.assertEqual(read(vector(16, 3, body)).values, ["Amélie", "Léon", None])

    def test_decodes_a_factor(self):
        factor = integers(2, 1, -(2**31), attrs=attributes((symbol("levels"), strings("a", "b"))))
        self.assertEqual(read(factor).decoded(), ["b", "a", None])

    def test_resolves_references_to_earlier_symbols(self):
        inner = integers(1, attrs=attributes((symbol("names"), strings("x"))))
        outer = vector(19, 1, inner, attributes((reference(1), strings("y"))))
        value = read(outer)
        self.assertEqual(list(value.named()), ["y"])
        self.assertEqual(value.named()["y"].named(), {"x": 1})

    def test_refuses_what_is_not_a_serialised_object(self):
        for data in (b"", b"A\n", b"X\n" + struct.pack(">3i", 4, 0, 0)):
            with self.assertRaises(movielens.DataError):
                movielens.RReader(data).read()

    def test_refuses_every_truncation(self):
        whole = HEADER_3 + vector(19, 1, reals(1.0), attributes((symbol("names"), strings("x"))))
        for length in range(len(whole)):
            with self.assertRaises(movielens.DataError):
                movielens.RReader(whole[:length]).read()

    def test_refuses_unknown_types_by_number(self):
        with self.assertRaisesRegex(movielens.DataError, "R type 238"):
            read(struct.pack(">i", 238))

    def test_refuses_a_reference_to_nothing(self):
        with self.assertRaisesRegex(movielens.DataError, "symbol 3 of 0"):
            read(reference(3))


def sample_frame():
    columns = {
        "movieId": integers(31, 108583),
        "title": strings("Dangerous\tMinds", "Fawlty Towers"),
        "year": integers(1995, -(2**31)),
        "genres": integers(1, 2, attrs=attributes(
            (symbol("levels"), strings("Drama|Romance", "(no genres listed)")))),
        "userId": integers(1, 73),
        "rating": reals(2.5, 5.0),
        "timestamp": integers(1260759144, 1435472609),
    }
    names = attributes((symbol("names"), strings(*columns)))
    return vector(19, len(columns), b"".join(columns.values()), names)


SAMPLE_ROWS = [
    ("1", "31", "2.5", "1260759144", "1995", "Drama|Romance", "Dangerous Minds"),
    ("73", "108583", "5", "1435472609", "", "", "Fawlty Towers"),
]


class ExportTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write_database(self, name, item):
        data = HEADER_3 + item
        stored = struct.pack(">i", len(data)) + zlib.compress(data)
        place = vector(19, 1, integers(5, len(stored)),
                       attributes((symbol("names"), strings(name))))
        index = vector(19, 2, place + integers(1),
                       attributes((reference(1), strings("variables", "compressed"))))
        database = self.directory / "Rdata"
        database.with_suffix(".rdb").write_bytes(b"other" + stored)
        database.with_suffix(".rdx").write_bytes(gzip.compress(HEADER_3 + index))
        return database

    def test_finds_an_object_of_a_lazy_load_database(self):
        database = self.write_database("movielens", sample_frame())
        frame = movielens.lazy_load(database, "movielens")
        self.assertEqual(list(movielens.plain_rows(frame)), SAMPLE_ROWS)

    def test_names_an_object_that_is_not_there(self):
        database = self.write_database("murders", sample_frame())
        with self.assertRaisesRegex(movielens.DataError, "no object movielens"):
            movielens.lazy_load(database, "movielens")

    def test_names_a_missing_column(self):
        frame = vector(19, 1, integers(1), attributes((symbol("names"), strings("userId"))))
        with self.assertRaisesRegex(movielens.DataError, "no column movieId, rating"):
            list(movielens.plain_rows(read(frame)))

    def test_refuses_a_dataset_of_the_wrong_size(self):
        with self.assertRaisesRegex(movielens.DataError, "'ratings': 2"):
            movielens.check_counts(SAMPLE_ROWS)

    def test_writes_the_header_and_one_line_a_rating(self):
        path = self.directory / "movielens.tsv"
        movielens.write_atomically(path, SAMPLE_ROWS)
        self.assertEqual(path.read_text(encoding="utf-8"),
                         "user\tmovie\trating\ttimestamp\tyear\tgenres\ttitle\n"
                         "1\t31\t2.5\t1260759144\t1995\tDrama|Romance\tDangerous Minds\n"
                         "73\t108583\t5\t1435472609\t\t\tFawlty Towers\n")

    def test_leaves_nothing_behind_when_writing_fails(self):
        def rows():
            yield SAMPLE_ROWS[0]
            raise OSError("disk full")

        with self.assertRaises(OSError):
            movielens.write_atomically(self.directory / "movielens.tsv", rows())
        self.assertEqual(list(self.directory.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
