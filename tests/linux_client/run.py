#!/usr/bin/env python3
"""The SMB client of Linux (cifs.ko) against Holdfast, in a virtual machine that Qemu emulates.

    run.py                  everything
    run.py locks            tests whose name contains the word
    run.py --kernel DIR     the client of another kernel: a folder with what its packages contain
    run.py --allow-missing  without Qemu or a kernel this is reported, but is no failure

tests/install unpacks Debian's kernel to target/linux_client/kernel. The guest boots it with this machine's root
folder, below an overlay in memory, and runs guest.py; it reaches the server by Qemu's user network, whose address
10.0.2.2 is this machine's 127.0.0.1. Needs root, because the guest reads files of root's.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))
from holdfast import PASSWORD, REPO, USER, Failure, Holdfast  # noqa: E402
from report import Report, arguments  # noqa: E402

KERNEL = REPO / "target" / "linux_client" / "kernel"
# Modules that the guest needs before it has a root folder.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net"]
# The guest ends by itself sooner; a kernel that hangs does not.
SECONDS_MAX = 600
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /modules/*; do $b insmod $module; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /below
$b mount -t tmpfs t /above; $b mkdir /above/upper /above/work
$b mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work root /root
$b mount --move /dev /root/dev; $b mount -t proc p /root/proc; $b mount -t sysfs s /root/sys
for folder in tmp run mnt; do $b mount -t tmpfs t /root/$folder; done
$b mkdir /root/mnt/exchange
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=none exchange /root/mnt/exchange
$b mkdir -p /root/lib/modules; $b mount -o bind /below%(modules)s /root/lib/modules
$b ifconfig lo 127.0.0.1 up; $b ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
exec $b switch_root /root /usr/bin/python3 %(guest)s
"""


def missing(kernel):
    """The names of what this machine lacks."""
    programs = ["qemu-system-x86_64", "busybox", "mount.cifs", "modprobe", "depmod"]
    lacks = [program for program in programs if not shutil.which(program)]
    if os.geteuid() != 0:
        lacks.append("root")
    if not image_of(kernel):
        lacks.append(f"a kernel in {kernel} (tests/install)")
    return lacks


def image_of(kernel):
    """The kernel and its version; None without one. Newer packages have it beside its modules."""
    for modules in (kernel / "lib" / "modules").glob("*"):
        for image in (kernel / "boot" / f"vmlinuz-{modules.name}", modules / "vmlinuz"):
            if image.exists():
                return image, modules.name
    return None


def initial_root(kernel, version, folder):
    """Packs the first root folder of the guest: busybox, modules, and the script that finds the real root."""
    subprocess.run(["depmod", "-b", kernel, version], check=True)
    files = folder / "initial"
    for name in ("bin", "modules", "proc", "sys", "dev", "below", "above", "root"):
        (files / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), files / "bin" / "busybox")
    found = []
    for module in MODULES:
        said = subprocess.run(["modprobe", "-d", kernel, "-S", version, "--show-depends", module],
                              check=True, capture_output=True, text=True).stdout
        found += [line.split()[1] for line in said.splitlines() if line.startswith("insmod")]
    for number, path in enumerate(dict.fromkeys(found)):
        target = files / "modules" / f"{number:02}-{pathlib.Path(path).name.removesuffix('.xz')}"
        if path.endswith(".xz"):
            with open(target, "wb") as out:
                subprocess.run(["xz", "-dc", path], check=True, stdout=out)
        else:
            shutil.copy(path, target)
    init = files / "init"
    modules = (kernel / "lib" / "modules").resolve()
    init.write_text(INIT % {"modules": modules, "guest": HERE / "guest.py"})
    init.chmod(0o755)
    packed = folder / "initial.cpio"
    with open(packed, "wb") as out:
        subprocess.run("find . | busybox cpio -o -H newc", shell=True, cwd=files, check=True, stdout=out,
                       stderr=subprocess.DEVNULL)
    return packed


def boot(image, initial, exchange):
    share = "local,security_model=none,multidevs=remap"
    return subprocess.Popen(
        ["qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "1500", "-nographic", "-no-reboot",
         "-kernel", image, "-initrd", initial,
         "-append", "console=ttyS0 quiet panic=1 mitigations=off random.trust_cpu=on",
         "-virtfs", f"{share},path=/,mount_tag=root,readonly=on",
         "-virtfs", f"{share},path={exchange},mount_tag=exchange",
         "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def restart_on_demand(server, exchange, guest, failures):
    """Kills and restarts the server each time that the guest asks for it by another file."""
    number = 0
    while guest.poll() is None:
        if (exchange / f"kill-{number}").exists():
            try:
                server.kill_and_start_again()
            except Failure as why:
                failures.append(why)
                guest.kill()
            (exchange / f"killed-{number}").touch()
            number += 1
        time.sleep(0.1)


def report_of(exchange, report, console):
    """The guest's own lines: name, and why it failed."""
    lines = exchange / "report"
    for line in lines.read_text().splitlines() if lines.exists() else []:
        name, why = json.loads(line)
        report.wanted = True
        report.fail(name, why) if why else report.ok(name)
    if not (exchange / "ended").exists():
        report.fail("the guest", "did not come to its end:\n" + console[-4000:])


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=pathlib.Path, default=KERNEL)
    asked = parser.parse_args()
    report = Report("Linux client", asked.allow_missing, asked.only)
    if lacks := missing(asked.kernel):
        report.wanted = True
        report.missing("a virtual machine", ", ".join(lacks))
        report.end()
    image, version = image_of(asked.kernel)
    shares = {"data": {}, "steady": {"continuous_availability": True}}
    with tempfile.TemporaryDirectory(prefix="holdfast-linux-") as folder:
        folder = pathlib.Path(folder)
        exchange = folder / "exchange"
        exchange.mkdir()
        try:
            initial = initial_root(asked.kernel, version, folder)
            with Holdfast(shares, {"signing": "desired"}) as server:
                wanted = {"port": server.port, "user": USER, "password": PASSWORD, "only": asked.only}
                (exchange / "asked").write_text(json.dumps(wanted))
                guest, failures = boot(image, initial, exchange), []
                restarting = threading.Thread(target=restart_on_demand, args=(server, exchange, guest, failures))
                restarting.start()
                try:
                    console = guest.communicate(timeout=SECONDS_MAX)[0]
                except subprocess.TimeoutExpired:
                    guest.kill()
                    console = guest.communicate()[0]
                finally:
                    guest.kill()
                    guest.wait()
                    restarting.join()
                report_of(exchange, report, console)
                for why in failures:
                    report.fail("a restart of the server", why)
            report.ok("the server ended in order")
        except Failure as why:
            report.fail("server", why)
    report.end()


if __name__ == "__main__":
    main()
