"""The guest's kernel: Debian's real one, unpacked beside the tree, and the initramfs it boots with.

    apt-get download linux-image-V-amd64 -> dpkg -x -> ~/.cache/byteexpress/rxe/V
    busybox-static + modules + tests/rxe/init -> initramfs, in memory, for each boot

Needs no root. Nothing is asked of apt when the cache holds a kernel.
"""

import contextlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                     "byteexpress", "rxe")
META_PACKAGE = "linux-image-amd64"
INIT = pathlib.Path(__file__).with_name("init")
BUSYBOX = "/bin/busybox"

# In this order, each after those that it depends on. rdma_rxe needs crc32_generic, which no
# dependency tells: without it `rdma link add` fails.
MODULES = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net", "dummy",
           "macvlan", "crc32_generic", "ib_uverbs", "rdma_rxe", "rdma_ucm",
           "sch_netem", "sch_ingress", "cls_u32", "act_gact"]


class Unavailable(Exception):
    """Why there can be no guest on this machine."""


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def kernel():
    """The folder with vmlinux and lib/modules; filled from apt when it is empty."""
    cached = sorted(CACHE.glob("linux-image-*"), key=lambda path: path.stat().st_mtime)
    return cached[-1] if cached else download()


def download():
    depends = run(["apt-cache", "depends", META_PACKAGE])
    found = re.search(r"linux-image-\d[^\s]*-amd64", depends)
    if not found:
        raise Unavailable(f"apt knows no {META_PACKAGE} (run apt-get update)")
    package = found.group(0)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="download-") as folder:
        run(["apt-get", "download", package], cwd=folder)
        unpacked = pathlib.Path(folder, package)
        run(["dpkg", "-x", *map(str, pathlib.Path(folder).glob("*.deb")), str(unpacked)])
        image = next(unpacked.glob("boot/vmlinuz-*")).read_bytes()
        (unpacked / "vmlinux").write_bytes(decompress(image))
        for needless in ["boot", "usr", *unpacked.glob("lib/modules/*/kernel/sound"),
                         *unpacked.glob("lib/modules/*/kernel/drivers/[gm]*")]:
            shutil.rmtree(unpacked / needless)
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(unpacked, CACHE / package)
    return CACHE / package


def decompress(image):
    """The ELF file within a bzImage. Its own decompressor takes seconds when it is emulated."""
    for start in re.finditer(rb"\xfd7zXZ\x00", image):
        try:
            return lzma.LZMADecompressor().decompress(image[start.start():])
        except lzma.LZMAError:
            continue
    raise Unavailable("the kernel image is not compressed with xz")


def module_files(folder):
    """The files of MODULES and of all that they depend on, each after its dependencies."""
    files = {path.stem.replace("-", "_"): path for path in folder.glob("lib/modules/**/*.ko")}
    order = {}

    def add(name):
        if name in order:
            return
        data = files[name].read_bytes()
        for needed in re.search(rb"\0depends=([^\0]*)\0", data).group(1).decode().split(","):
            if needed:
                add(needed)
        order[name] = data

    for name in MODULES:
        add(name)
    return order


def initramfs(folder, files):
    """A cpio archive of busybox, init, the modules, and `files` (name to text)."""
    archive = bytearray()

    def add(name, mode, data=b""):
        for part in (b"070701" + b"".join(b"%08x" % field for field in (
                0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
                + name.encode() + b"\0", data):
            archive.extend(part + b"\0" * (-len(part) % 4))

    for name in ["bin", "modules", "dev", "proc", "host", "root", "overlay"]:
        add(name, 0o40755)
    add("bin/busybox", 0o100755, pathlib.Path(BUSYBOX).read_bytes())
    add("init", 0o100755, INIT.read_bytes())
    for number, (name, data) in enumerate(module_files(folder).items()):
        add(f"modules/{number:02}-{name}.ko", 0o100644, data)
    for name, text in files.items():
        add(name, 0o100755, text.encode())
    add("TRAILER!!!", 0)
    return bytes(archive)
