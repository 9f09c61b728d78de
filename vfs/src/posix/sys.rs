//! The system calls that rustix lacks. Besides the ring, only this file has `unsafe` code.
//!
//! Each function is one call with safe types around it. The conditions for soundness are stated at the call;
//! nothing here has state or decides anything.
//!
//! The calls are `preadv2` into memory not yet initialised, `faccessat2` of a descriptor, `sync_file_range` (to start
//! only), `cachestat`, `FICLONERANGE`, the two ioctls that return a file system's UUID, the one that syncs a btrfs, the
//! one that returns the state of an inode of ext4, the two calls of Linux 6.13 that read extended attributes by
//! directory and path (`getxattrat`, `listxattrat`), `setfsuid`/`setfsgid` of the calling thread, `unshare(CLONE_FS)`,
//! the socket option `SO_RCVLOWAT`, the handler of SIGSYS, and two functions of glibc's allocator.

use std::{
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd},
};

use bytes::BytesMut;

use crate::disk::{DiskResult, Errno};

/// The uid that `setfsuid` takes as "change nothing".
const NO_ID: u32 = u32::MAX;
/// `FICLONERANGE`: `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: libc::c_ulong = 0x4020_940D;
/// `FS_IOC_GETFSUUID`: `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;
/// `XFS_IOC_FSGEOMETRY_V1`: `_IOR('X', 100, struct xfs_fsop_geom_v1)`.
const XFS_IOC_FSGEOMETRY_V1: libc::c_ulong = 0x8070_5864;
/// The flag in XFS's geometry that files can share blocks.
const XFS_FSOP_GEOM_FLAGS_REFLINK: u32 = 1 << 20;
/// `BTRFS_IOC_SYNC`: `_IO(0x94, 8)`.
const BTRFS_IOC_SYNC: libc::c_ulong = 0x9408;
/// `EXT4_IOC_GETSTATE`: `_IOW('f', 41, __u32)`.
const EXT4_IOC_GETSTATE: libc::c_ulong = 0x4004_6629;
/// The flag in the state of an ext4's inode that its next close starts write-back.
const EXT4_STATE_FLAG_DA_ALLOC_CLOSE: u32 = 8;

/// `getxattrat` of Linux 6.13, which the next one follows. The number is the same on all architectures with the common
/// table (`scripts/syscall.tbl` and x86's `syscall_64.tbl`), all but Alpha, MIPS and x32. Elsewhere an invalid number
/// gives ENOSYS.
const GETXATTRAT: libc::c_long = if cfg!(all(
    target_pointer_width = "64",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64",
        target_arch = "s390x"
    )
)) {
    464
} else {
    -2
};
const LISTXATTRAT: libc::c_long = GETXATTRAT + 1;

/// `cachestat` of Linux 6.5; its number is common to all architectures of the table above.
const CACHESTAT: libc::c_long = if GETXATTRAT > 0 { 451 } else { -1 };

#[repr(C, align(8))]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

fn last() -> Errno {
    std::io::Error::last_os_error().into()
}

fn position(offset: u64) -> DiskResult<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| Errno(libc::EINVAL))
}

fn done(result: impl Into<libc::c_long>) -> DiskResult<()> {
    if result.into() == 0 {
        Ok(())
    } else {
        Err(last())
    }
}

/// `preadv2` of up to `len` bytes, appended to `buf`. Returns the bytes read; 0 at the end.
pub(crate) fn read_at(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buf: &mut BytesMut,
    nowait: bool,
) -> DiskResult<usize> {
    let offset = position(offset)?;
    buf.reserve(len);
    let spare = buf.spare_capacity_mut();
    let len = len.min(spare.len());
    let iov = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: len,
    };
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    // SAFETY: `iov` describes `len` bytes of `spare`, which nobody else can reach while `buf` is
    // borrowed mutably; the kernel writes at most `len` bytes there and reads none.
    let got = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const iov, 1, offset, flags) };
    let got = usize::try_from(got).map_err(|_| last())?;
    let filled = buf.len() + got.min(len);
    // SAFETY: the kernel initialised the first `got` bytes after the old length, and `got` is
    // within the spare capacity.
    unsafe { buf.set_len(filled) };
    Ok(got)
}

/// `sync_file_range(SYNC_FILE_RANGE_WRITE)`: starts write-back of dirty pages. It waits only if the device's queue is
/// full, and makes nothing stable.
pub(crate) fn start_write_back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> DiskResult<()> {
    let (offset, len) = (position(offset)?, position(len)?);
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: takes no memory; the descriptor is borrowed for the call.
    let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) };
    done(result)
}

/// The pages of a range that are in the page cache, and how many of them are being written back (`cachestat`).
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> DiskResult<(u64, u64)> {
    // `struct cachestat_range` (offset, length) and `struct cachestat` (cached, dirty, written back, evicted, recently
    // evicted) have only fields of 64 bits.
    let range = [offset, len];
    let mut counts = [0_u64; 5];
    let fd = fd.as_raw_fd();
    // SAFETY: the kernel reads `range` and writes `counts`, which have its layout and live longer than the call.
    done(unsafe { libc::syscall(CACHESTAT, fd, &raw const range, &raw mut counts, 0) })?;
    let [cached, _, written_back, _, _] = counts;
    Ok((cached, written_back))
}

/// `faccessat2(fd, "", mode, AT_EMPTY_PATH | AT_EACCESS)`.
pub(crate) fn access(fd: BorrowedFd<'_>, mode: u32) -> DiskResult<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: the path is a NUL-terminated constant; the other arguments are numbers.
    done(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            mode,
            flags,
        )
    })
}

/// `getxattrat`: the attribute's value; without a name `listxattrat`: all names, each followed by a NUL. The result is
/// appended to `out` within its capacity. `flags` are `AT_*`. ERANGE if there is not enough room.
pub(crate) fn xattr_at(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    name: Option<&CStr>,
    out: &mut Vec<u8>,
) -> DiskResult<()> {
    let spare = out.spare_capacity_mut();
    if spare.is_empty() {
        return Err(Errno(libc::ERANGE)); // 0 would ask for the length.
    }
    let (dir, path) = (dir.as_raw_fd(), path.as_ptr());
    let (value, room) = (spare.as_mut_ptr(), spare.len());
    let got = match name {
        Some(name) => {
            let args = XattrArgs {
                value: value.expose_provenance() as u64,
                size: u32::try_from(room).unwrap_or(u32::MAX),
                flags: 0,
            };
            let (name, args, size) = (name.as_ptr(), &raw const args, size_of::<XattrArgs>());
            // SAFETY: path and name end with a NUL. `args` has the layout of `struct xattr_args` and says
            // where `spare` is and not more than its length; nobody else can reach that while `out` is
            // borrowed mutably, and the kernel writes at most so many bytes there.
            unsafe { libc::syscall(GETXATTRAT, dir, path, flags, name, args, size) }
        }
        // SAFETY: the path ends with a NUL; the kernel writes at most the length of `spare` there,
        // which nobody else can reach while `out` is borrowed mutably.
        None => unsafe { libc::syscall(LISTXATTRAT, dir, path, flags, value, room) },
    };
    let got = usize::try_from(got).map_err(|_| last())?;
    let filled = out.len() + got.min(room);
    // SAFETY: within the capacity; the kernel initialised the first `got` bytes after the old length.
    unsafe { out.set_len(filled) };
    Ok(())
}

pub(crate) fn clone_range(
    from: BorrowedFd<'_>,
    from_offset: u64,
    to: BorrowedFd<'_>,
    to_offset: u64,
    len: u64,
) -> DiskResult<()> {
    #[repr(C)]
    struct Range {
        from: i64,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    }
    let range = Range {
        from: i64::from(from.as_raw_fd()),
        from_offset,
        len,
        to_offset,
    };
    // SAFETY: `range` has the layout of `struct file_clone_range`, which the kernel only reads.
    done(unsafe { libc::ioctl(to.as_raw_fd(), FICLONERANGE as _, &raw const range) })
}

/// `ioctl(FS_IOC_GETFSUUID)`. ENODATA for a UUID of another length.
pub(crate) fn fs_uuid(fd: BorrowedFd<'_>) -> DiskResult<[u8; 16]> {
    #[repr(C)]
    struct Uuid {
        len: u8,
        uuid: [u8; 16],
    }
    let mut out = Uuid {
        len: 0,
        uuid: [0; 16],
    };
    // SAFETY: `out` has the layout of `struct fsuuid2` (17 bytes, as the number says), which the
    // kernel only writes.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFSUUID as _, &raw mut out) })?;
    if usize::from(out.len) == out.uuid.len() {
        Ok(out.uuid)
    } else {
        Err(Errno(libc::ENODATA))
    }
}

/// The result of `ioctl(XFS_IOC_FSGEOMETRY_V1)`.
pub(crate) struct XfsGeometry {
    pub(crate) uuid: [u8; 16],
    pub(crate) reflink: bool,
}

/// `ioctl(XFS_IOC_FSGEOMETRY_V1)`. For XFS only.
pub(crate) fn xfs_geometry(fd: BorrowedFd<'_>) -> DiskResult<XfsGeometry> {
    #[repr(C, align(8))]
    struct Geometry {
        before: [u8; 64],
        uuid: [u8; 16],
        stripe: [u32; 2],
        version: i32,
        flags: u32,
        after: [u8; 16],
    }
    let mut out = Geometry {
        before: [0; 64],
        uuid: [0; 16],
        stripe: [0; 2],
        version: 0,
        flags: 0,
        after: [0; 16],
    };
    // SAFETY: `out` has the size (112 bytes, as the number says) and alignment of `struct
    // xfs_fsop_geom_v1`, which the kernel only writes; any bytes are valid in it.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1 as _, &raw mut out) })?;
    Ok(XfsGeometry {
        uuid: out.uuid,
        reflink: out.flags & XFS_FSOP_GEOM_FLAGS_REFLINK != 0,
    })
}

/// `ioctl(BTRFS_IOC_SYNC)`: writes back all data and commits the transaction that is open, if one is. Unlike `syncfs`
/// it returns the errors of that commit, and not errors in the data of other inodes. For btrfs only.
pub(crate) fn btrfs_sync(fd: BorrowedFd<'_>) -> DiskResult<()> {
    // SAFETY: takes no memory; the descriptor is borrowed for the call.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_SYNC as _) })
}

/// Whether the file was truncated to nothing, so that its next close by anyone starts write-back: what
/// `ioctl(EXT4_IOC_GETSTATE)` of Linux 5.4 answers. For ext4 only; false if that fails.
pub(crate) fn ext4_close_writes_back(fd: BorrowedFd<'_>) -> bool {
    let mut state = 0_u32;
    // SAFETY: `state` is the `__u32` that the kernel only writes; any bytes are valid in it.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), EXT4_IOC_GETSTATE as _, &raw mut state) };
    asked == 0 && state & EXT4_STATE_FLAG_DA_ALLOC_CLOSE != 0
}

/// Sets the calling thread's file-system uid, and returns the previous one. EPERM if the kernel did not accept it.
pub(crate) fn set_fs_uid(uid: u32) -> DiskResult<u32> {
    let before = swap_fs_uid(uid);
    if fs_uid() == uid {
        Ok(before)
    } else {
        Err(Errno(libc::EPERM))
    }
}

/// Sets the calling thread's file-system uid without checking that the kernel accepted it, and returns the previous
/// one.
pub(crate) fn swap_fs_uid(uid: u32) -> u32 {
    // SAFETY: a plain system call on a number. libc does not spread this one over all threads.
    let before = unsafe { libc::setfsuid(uid) };
    u32::from_ne_bytes(before.to_ne_bytes())
}

pub(crate) fn fs_uid() -> u32 {
    swap_fs_uid(NO_ID)
}

/// Sets the calling thread's file-system gid. EPERM if the kernel did not accept it.
pub(crate) fn set_fs_gid(gid: u32) -> DiskResult<()> {
    // SAFETY: as in `swap_fs_uid`.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(NO_ID)
    };
    if u32::from_ne_bytes(now.to_ne_bytes()) == gid {
        Ok(())
    } else {
        Err(Errno(libc::EPERM))
    }
}

/// Gives the calling thread a umask of its own (`unshare(CLONE_FS)`) and sets it to 0, so that
/// files get exactly the modes requested. The process's other threads keep theirs.
pub(crate) fn own_umask() -> DiskResult<()> {
    // SAFETY: CLONE_FS only separates working directory, root and umask; no memory is involved.
    done(unsafe { libc::unshare(libc::CLONE_FS) })?;
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

/// The function of [`catch_refused_calls`]. It is called in a signal handler, so it must neither allocate nor lock.
static REFUSED_CALL: std::sync::OnceLock<fn(usize)> = std::sync::OnceLock::new();

/// Makes a system call that a seccomp filter refuses (`SECCOMP_RET_TRAP`) answer ENOSYS, and passes its number to
/// `note`. On architectures whose registers are not known here, the signal ends the process.
pub(crate) fn catch_refused_calls(note: fn(usize)) -> DiskResult<()> {
    let _ = REFUSED_CALL.set(note);
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Ok(());
    }
    // SAFETY: all bytes zero are a valid `sigaction`: an empty mask, no flags, the default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = refused_call;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` lives for the call, and its handler has the signature of SA_SIGINFO.
    done(unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) })
}

extern "C" fn refused_call(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    /// `si_code` of a call that seccomp refused (asm-generic/siginfo.h).
    const SYS_SECCOMP: libc::c_int = 1;
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo.
    if unsafe { (*info).si_code } != SYS_SECCOMP {
        return;
    }
    // SAFETY: likewise a valid ucontext, which is this thread's alone while the handler runs.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    // The kernel has restored the register with the number; the result is stored where that of the call would be.
    #[cfg(target_arch = "x86_64")]
    let number = {
        let Some(rax) = registers.gregs.get_mut(libc::REG_RAX as usize) else {
            return;
        };
        std::mem::replace(rax, -i64::from(libc::ENOSYS)).cast_unsigned()
    };
    #[cfg(target_arch = "aarch64")]
    let number = {
        registers.regs[0] = (-i64::from(libc::ENOSYS)).cast_unsigned();
        registers.regs[8]
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let (number, _) = (u64::MAX, context);
    if let (Some(note), Ok(number)) = (REFUSED_CALL.get(), usize::try_from(number)) {
        note(number);
    }
}

/// Sets the number of bytes from which on a TCP socket counts as readable (`SO_RCVLOWAT`, tcp(7)). It also does when no
/// more fit in, at the end of the stream, and after an error.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: usize) -> DiskResult<()> {
    const SIZE: libc::socklen_t = size_of::<libc::c_int>() as libc::socklen_t;
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (fd, value) = (socket.as_raw_fd(), (&raw const bytes).cast());
    // SAFETY: the kernel reads the number that `value` points to.
    done(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, SIZE) })
}

/// Gives free pages of all arenas of glibc's allocator back to the kernel; true if there were some. Other allocators
/// are left alone.
pub(crate) fn trim_arenas() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: concerns free memory only, under the allocator's own locks.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Limits the number of arenas of glibc's allocator, for the whole process from now on; other allocators are left
/// alone.
pub(crate) fn limit_arenas(most: usize) {
    #[cfg(target_env = "gnu")]
    {
        let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
        // SAFETY: sets a number under the allocator's own lock.
        if unsafe { libc::mallopt(libc::M_ARENA_MAX, most) } == 0 {
            tracing::debug!("the allocator's arenas could not be limited");
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}
