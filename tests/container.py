#!/usr/bin/env python3
"""Runs a command as a container with Docker's defaults would, without Docker.

    tests/container.py COMMAND...

Calls that Docker's seccomp profile refuses, as io_uring, mounts and memory policies, fail with
EPERM (clone3: ENOSYS). Root has the capabilities that Docker leaves it. /dev/shm holds 64 MB, /dev
has no hardware, /tmp is an overlay, and /sys cannot be written. The command has its own processes
and System V objects. All other files, and the network, are the machine's. Before the command starts
the program prints what it finds in the container.

It needs libseccomp, and root or the right to make user namespaces. The exit code is the command's,
or 125, with the reason, if such a container is impossible here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

CANNOT = 125  # as in `docker run`
SHM_SIZE = 64 << 20
LOCKED_MEMORY_MAX = 8 << 20  # systemd gives it to dockerd, which gives it to containers

# linux/sched.h, linux/mount.h, sys/mount.h, linux/prctl.h
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
CLONE_NEWCGROUP, CLONE_NEWNET = 0x02000000, 0x40000000
MS_NOSUID, MS_NOEXEC, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 2, 8, 0x1000, 0x2000, 0x4000, 0x40000
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR, SYS_IO_URING_SETUP = 442, 425  # the same on every architecture
PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 23, 24
# seccomp.h of libseccomp
ACT_ALLOW, ACT_ERRNO, NO_NEW_PRIVS, MASKED_EQUAL = 0x7FFF0000, 0x00050000, 3, 7

# linux/capability.h: what Docker leaves.
CAPABILITIES = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "net_raw": 13,
    "sys_chroot": 18,
    "mknod": 27,
    "audit_write": 29,
    "setfcap": 31,
}
CAPABILITY_MAX = 63

# All calls in use today that Docker's profile does not allow without further capabilities.
REFUSED = [
    "io_uring_setup", "io_uring_enter", "io_uring_register", "acct", "add_key", "bpf",
    "clock_settime", "delete_module", "fanotify_init", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "get_mempolicy", "init_module", "ioperm", "iopl",
    "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mbind",
    "migrate_pages", "mount", "mount_setattr", "move_mount", "move_pages", "open_by_handle_at",
    "open_tree", "perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "quotactl",
    "quotactl_fd", "reboot", "request_key", "set_mempolicy", "set_mempolicy_home_node",
    "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog",
    "umount", "umount2", "unshare", "userfaultfd", "vhangup",
]  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


class CannotError(Exception):
    """Such a container is impossible here."""


def check(result: int, what: str) -> None:
    """Raise OSError if a call of libc failed."""
    if result != 0:
        raise CannotError(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, place: str | Path, kind: str, flags: int = 0, options: str = "") -> None:
    """Call mount(2)."""
    words = [word.encode() for word in (source, str(place), kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {place}")


def enter_namespaces() -> bool:
    """Enter new namespaces; return whether a user namespace is among them."""
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    user, group = os.geteuid(), os.getegid()
    alone = user != 0
    check(libc.unshare(flags | (CLONE_NEWUSER if alone else 0)), "namespaces")
    if alone:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    return alone


def make_devices(folder: Path) -> None:
    """Mount a /dev without hardware, which is built in `folder`."""
    mount("tmpfs", folder, "tmpfs", MS_NOSUID, "mode=755,size=64k")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (folder / name).touch()
        mount(f"/dev/{name}", folder / name, "", MS_BIND)
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    mount("devpts", folder / "pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666")
    mount("shm", folder / "shm", "tmpfs", MS_NOSUID | MS_NOEXEC, f"mode=1777,size={SHM_SIZE}")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (folder / name).symlink_to(f"/proc/self/{target}")
    (folder / "ptmx").symlink_to("pts/ptmx")
    mount(str(folder), "/dev", "", MS_MOVE)


def make_mounts(scratch: Path, alone: bool) -> None:
    """Mount the file systems that a container has of its own."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    for name in ("upper", "work", "dev"):
        (scratch / name).mkdir()
    (scratch / "upper").chmod(0o1777)
    layers = f"lowerdir=/tmp,upperdir={scratch}/upper,workdir={scratch}/work"
    make_devices(scratch / "dev")
    mount("overlay", "/tmp", "overlay", 0, layers + (",userxattr" if alone else ""))
    here = Path.cwd()  # the one below the overlay, if it lies there
    os.chdir("/")
    os.chdir(here)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)  # set, clear, propagation, user
    check(
        libc.syscall(
            SYS_MOUNT_SETATTR, AT_FDCWD, b"/sys", AT_RECURSIVE, attributes, ctypes.c_size_t(32)
        ),
        "/sys cannot be made read-only",
    )


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp of libseccomp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def refuse_calls() -> None:
    """Make the OS refuse from now on the calls that Docker's seccomp profile refuses."""
    try:
        seccomp = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise CannotError(str(error)) from error
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(ACT_ALLOW)))

    def refuse(call: str, error: int, *comparisons: Comparison) -> None:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number < 0 and not call.startswith("io_uring"):
            return  # unknown to this architecture or to libseccomp
        array = (Comparison * max(len(comparisons), 1))(*comparisons)
        action = ctypes.c_uint32(ACT_ERRNO | error)
        result = seccomp.seccomp_rule_add_array(rules, action, number, len(comparisons), array)
        if result != 0:
            raise CannotError(f"seccomp: {call}: {os.strerror(-result)}")

    for call in REFUSED:
        refuse(call, errno.EPERM)
    for flag in (
        CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID,
        CLONE_NEWNET,
    ):  # fmt: skip
        refuse("clone", errno.EPERM, Comparison(0, MASKED_EQUAL, flag, flag))
    refuse("clone3", errno.ENOSYS)  # seccomp cannot read its flags; programs then use clone
    seccomp.seccomp_attr_set(rules, NO_NEW_PRIVS, 0)  # Docker does not set it
    if result := seccomp.seccomp_load(rules):
        raise CannotError(f"seccomp: {os.strerror(-result)}")
    seccomp.seccomp_release(rules)


def drop_capabilities() -> None:
    """Drop the capabilities that Docker drops."""
    for number in range(CAPABILITY_MAX + 1):
        if libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) != 1:
            continue
        if number not in CAPABILITIES.values():
            check(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "capabilities")


def describe() -> str:
    """Print the properties of the container, as found and not as intended."""
    libc.syscall(SYS_IO_URING_SETUP, 1, None)
    uring = errno.errorcode[ctypes.get_errno()]
    told = os.statvfs("/dev/shm")
    bounds = [
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapBnd:")
    ]
    devices = sorted(path.name for path in Path("/dev").iterdir())
    return (
        f"io_uring_setup: {uring}; /dev/shm: {told.f_blocks * told.f_frsize >> 20} MiB; "
        f"capabilities: {bounds[0]}; /dev: {' '.join(devices)}; "
        f"/sys: {'read-only' if os.statvfs('/sys').f_flag & os.ST_RDONLY else 'writable'}"
    )


def start(command: list[str]) -> NoReturn:
    """Replace this process by the command."""
    try:
        most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        locked = LOCKED_MEMORY_MAX if most < 0 else min(most, LOCKED_MEMORY_MAX)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
        drop_capabilities()
        refuse_calls()
        print(describe(), flush=True)
        os.environ |= {"TMPDIR": "/tmp", "TEST_TMPDIR": "/tmp"}
        os.execvp(command[0], command)
    except (CannotError, OSError) as error:
        print(f"container.py: {error}", file=sys.stderr, flush=True)
    os._exit(CANNOT)


def be_first(command: list[str]) -> NoReturn:
    """Act as process 1: start the command, reap processes that end, and end with the command."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    code = CANNOT
    try:
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NOEXEC)
        child = os.fork()
        if child == 0:
            start(command)
        while True:
            ended, status = os.wait()
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                break
    except (CannotError, OSError) as error:
        print(f"container.py: {error}", file=sys.stderr, flush=True)
    os._exit(code if code >= 0 else 128 - code)


def run(command: list[str]) -> int:
    """Run the command in a container; return its exit code."""
    # The folder is not in /tmp, since it becomes the upper layer of /tmp.
    scratch = Path(tempfile.mkdtemp(prefix="penstock-container-", dir="/var/tmp"))
    maker = os.fork()  # the child has the namespaces, so that we can clean up
    if maker == 0:
        code = CANNOT
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            make_mounts(scratch, enter_namespaces())
            first = os.fork()
            if first == 0:
                be_first(command)
            code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        except (CannotError, OSError) as error:
            print(f"container.py: {error}", file=sys.stderr, flush=True)
        os._exit(code if code >= 0 else 128 - code)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(maker, 0)[1])
    finally:
        inner = scratch / "work/work"  # the OS refuses new namespaces
        if inner.is_dir():
            inner.chmod(stat.S_IRWXU)
        shutil.rmtree(scratch)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
