//! The kernel's calls without a C library, whose own start takes several times as long as all
//! that this program does: on virtual machines, each look at the processor's features is a trap.

use core::arch::{asm, global_asm};

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 231;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const SETRESGID: usize = 119;
    pub const CAPSET: usize = 126;
    pub const PRCTL: usize = 157;
    pub const OPENAT: usize = 257;
    pub const IOCTL: usize = 16;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const DUP3: usize = 292;
    pub const CLONE: usize = 56;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const CHDIR: usize = 80;
    pub const UMASK: usize = 95;
    pub const GETEUID: usize = 107;
    pub const GETEGID: usize = 108;
    pub const GETPPID: usize = 110;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const PIVOT_ROOT: usize = 155;
    pub const SETRLIMIT: usize = 160;
    pub const MOUNT: usize = 165;
    pub const UMOUNT2: usize = 166;
    pub const SETHOSTNAME: usize = 170;
    pub const MKDIRAT: usize = 258;
    pub const SYMLINKAT: usize = 266;
    pub const PPOLL: usize = 271;
    pub const PIPE2: usize = 293;
    pub const STATX: usize = 332;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const EXECVE: usize = 221;
    pub const EXIT: usize = 94;
    pub const SETGROUPS: usize = 159;
    pub const SETRESUID: usize = 147;
    pub const SETRESGID: usize = 149;
    pub const CAPSET: usize = 91;
    pub const PRCTL: usize = 167;
    pub const OPENAT: usize = 56;
    pub const IOCTL: usize = 29;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const DUP3: usize = 24;
    pub const CLONE: usize = 220;
    pub const WAIT4: usize = 260;
    pub const KILL: usize = 129;
    pub const CHDIR: usize = 49;
    pub const UMASK: usize = 166;
    pub const GETEUID: usize = 175;
    pub const GETEGID: usize = 177;
    pub const GETPPID: usize = 173;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const PIVOT_ROOT: usize = 41;
    pub const SETRLIMIT: usize = 164;
    pub const MOUNT: usize = 40;
    pub const UMOUNT2: usize = 39;
    pub const SETHOSTNAME: usize = 161;
    pub const MKDIRAT: usize = 34;
    pub const SYMLINKAT: usize = 36;
    pub const PPOLL: usize = 73;
    pub const PIPE2: usize = 59;
    pub const STATX: usize = 291;
}

pub use numbers::*;
// The same everywhere, as all calls since 2011.
pub const OPEN_TREE: usize = 428;
pub const MOVE_MOUNT: usize = 429;
pub const FSOPEN: usize = 430;
pub const FSCONFIG: usize = 431;
pub const FSMOUNT: usize = 432;
pub const CLOSE_RANGE: usize = 436;
pub const MOUNT_SETATTR: usize = 442;
pub const LANDLOCK_CREATE_RULESET: usize = 444;
pub const LANDLOCK_ADD_RULE: usize = 445;
pub const LANDLOCK_RESTRICT_SELF: usize = 446;

/// Negative is an error: its number, with the sign changed.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: usize, given: [usize; 5]) -> isize {
    let result: isize;
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") given[0], in("rsi") given[1], in("rdx") given[2],
            in("r10") given[3], in("r8") given[4],
            out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: usize, given: [usize; 5]) -> isize {
    let result: isize;
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") given[0] => result,
            in("x1") given[1], in("x2") given[2], in("x3") given[3], in("x4") given[4],
            options(nostack)
        );
    }
    result
}

// The kernel leaves the count of words, the words and the variables on the stack.
#[cfg(all(freestanding, target_arch = "x86_64"))]
global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call begin", "ud2");
#[cfg(all(freestanding, target_arch = "aarch64"))]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl begin", "brk 1");
#[cfg(not(freestanding))]
global_asm!("");

/// What the compiler expects to find somewhere.
#[cfg(freestanding)]
mod expected {
    use super::{EXIT, call};

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {
            unsafe { call(EXIT, [125, 0, 0, 0, 0]) };
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        for index in 0..bytes {
            unsafe { *to.add(index) = *from.add(index) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
        for index in 0..bytes {
            unsafe { *to.add(index) = value as u8 };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, bytes: usize) -> i32 {
        for index in 0..bytes {
            let (a, b) = unsafe { (*one.add(index), *other.add(index)) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, bytes: usize) -> i32 {
        unsafe { memcmp(one, other, bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        let mut length = 0;
        while unsafe { *text.add(length) } != 0 {
            length += 1;
        }
        length
    }
}
