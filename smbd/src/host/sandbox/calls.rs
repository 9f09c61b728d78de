//! The system calls that the process may still make, by seccomp.
//!
//! Any other call answers ENOSYS, as on a kernel that does not have it, and its name is logged: the server
//! continues, and the log says what to report. Requests to io_uring are not system calls and are not checked here;
//! Landlock and capabilities apply to them.

use std::{io, time::Duration};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use syscalls::Sysno;
use vfs::linux::trap;

/// Calls that are allowed with any arguments. Names that an architecture does not have are left out there.
const ALLOWED: &str = "\
    accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmsg sendfile \
    sendmsg sendto setsockopt shutdown socketpair \
    brk clone clone3 exit exit_group futex get_robust_list getcpu getegid geteuid getgid getgroups \
    getpid getppid getrandom getrusage gettid getuid madvise membarrier mincore mremap munmap \
    prlimit64 restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn \
    sched_getaffinity sched_getparam sched_getscheduler sched_setaffinity sched_yield \
    set_robust_list set_tid_address setfsgid setfsuid setgroups sigaltstack sysinfo tgkill uname \
    clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time \
    capget capset \
    close close_range dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait \
    eventfd2 fcntl flock pipe2 poll ppoll timerfd_create timerfd_settime \
    inotify_add_watch inotify_init1 inotify_rm_watch \
    io_uring_enter io_uring_register io_uring_setup \
    access cachestat chdir chmod copy_file_range faccessat faccessat2 fadvise64 fallocate fchdir \
    fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr file_getattr flistxattr \
    fremovexattr fsetxattr fstat fstatfs fsync ftruncate getcwd getdents64 getxattr getxattrat \
    lgetxattr linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir \
    mkdirat mknodat newfstatat open openat openat2 pread64 preadv preadv2 \
    pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr \
    rename renameat renameat2 rmdir setxattr splice stat statfs statx symlinkat sync \
    sync_file_range syncfs tee truncate umask unlink unlinkat utimensat vmsplice write writev";

/// How soon a refused call is reported.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// `PROT_EXEC`, which is refused so that no memory becomes executable.
const PROT_EXEC: u64 = libc::PROT_EXEC as u64;
/// Families of sockets: the control socket, clients, and queries about interfaces.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// The options that threads use to query themselves.
const PRCTL: [i32; 7] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_PDEATHSIG,
    // PR_SET_VMA: glibc names its anonymous memory.
    0x5356_4d41,
    // PR_GET_AUXV: rustix asks for the size of a page when it is first needed.
    0x4155_5856,
];
/// Requests to descriptors: FICLONERANGE, FICLONE, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_GETFSUUID,
/// XFS_IOC_FSGEOMETRY_V1, BTRFS_IOC_SYNC, EXT4_IOC_GETSTATE, FIONREAD, FIONBIO, FIOCLEX, TCGETS, TIOCGWINSZ.
const IOCTL: [u64; 13] = [
    0x4020_940D,
    0x4004_9409,
    0x8008_6601,
    0x801C_581F,
    0x8011_1500,
    0x8070_5864,
    0x9408,
    0x4004_6629,
    0x541B,
    0x5421,
    0x5451,
    0x5401,
    0x5413,
];

/// Logs which calls were refused, until it is dropped.
pub async fn log_refused() {
    loop {
        for call in trap::take_new().into_iter().map(name) {
            tracing::error!(
                call,
                "the sandbox refused a system call\n  = please report it; `seccomp = false` in \
                 [sandbox] allows all"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Restricts all threads of the process.
pub(super) fn restrict() -> io::Result<()> {
    trap::catch()?;
    let program = program().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn name(number: usize) -> &'static str {
    Sysno::new(number).map_or("unknown", |call| call.name())
}

fn program() -> Result<BpfProgram, Box<dyn std::error::Error + Send + Sync>> {
    let any = |name: &str| Some((i64::from(name.parse::<Sysno>().ok()?.id()), Vec::new()));
    let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.split_ascii_whitespace().filter_map(any).collect();
    let eq = |argument, value| one_of(argument, SeccompCmpOp::Eq, value);
    let each = |argument, values: &[u64]| -> Result<Vec<_>, seccompiler::BackendError> {
        values.iter().map(|value| eq(argument, *value)).collect()
    };
    let as_u64 = |values: &[i32]| values.iter().map(|value| *value as u64).collect::<Vec<_>>();
    rules.insert(libc::SYS_socket, each(0, &as_u64(&FAMILIES))?);
    rules.insert(libc::SYS_prctl, each(0, &as_u64(&PRCTL))?);
    rules.insert(libc::SYS_ioctl, each(1, &IOCTL)?);
    rules.insert(libc::SYS_unshare, each(0, &[libc::CLONE_FS as u64])?);
    let no_code = || one_of(2, SeccompCmpOp::MaskedEq(PROT_EXEC), 0);
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Trap,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

fn one_of(
    argument: u8,
    how: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_fits() {
        // The kernel accepts 4,096 instructions.
        assert!(program().unwrap().len() < 3_000);
    }

    /// The test runs in a process of its own, because a filter cannot be removed.
    #[test]
    fn a_refused_call_fails_and_is_named() {
        const CHILD: &str = "HOLDFAST_TEST_CONFINED";
        if std::env::var_os(CHILD).is_some() {
            restrict().unwrap();
            assert_eq!(rustix::process::setsid(), Err(rustix::io::Errno::NOSYS));
            let names: Vec<_> = trap::take_new().into_iter().map(name).collect();
            assert_eq!((trap::refused(), names), (1, vec!["setsid"]));
            assert!(trap::take_new().is_empty());
            return;
        }
        let this = "host::sandbox::calls::tests::a_refused_call_fails_and_is_named";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--test-threads", "1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    fn names_are_those_of_calls() {
        let unknown: Vec<&str> = ALLOWED
            .split_ascii_whitespace()
            .filter(|name| name.parse::<Sysno>().is_err())
            .collect();
        if cfg!(target_arch = "x86_64") {
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }
}
