//! The processes that stay between the spawn helper and a task, until the task has ended.
//!
//! ```text
//!   walls   helper ── monitor ──┊── init (process 1 of its namespace) ── task
//!   keep    helper ── keeper ── task
//! ```
//!
//! When the task ends, init ends, and the kernel ends whatever else is in the namespace. A keeper
//! has no namespace: it adopts the orphans of its task and ends them itself. All of them pass on
//! how the task ended, and none of them outlives the helper.

use core::ffi::CStr;

use crate::kernel::{self, call};
use crate::{FAILED, close, control, drop_capabilities, exit, fail, keep_privileges, must, open};

const SIGKILL: usize = 9;
const SIGTERM: usize = 15;
const SIGCHLD: usize = 17;
const WNOHANG: usize = 1;
const EINTR: isize = 4;
const O_CLOEXEC: usize = 0o2_000_000;
const POLLHUP: i16 = 0x10;
const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_DUMPABLE: usize = 4;
const PR_SET_CHILD_SUBREAPER: usize = 36;
const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
const SIGNAL_SET_BYTES: usize = 8;
const AF_UNIX: usize = 1;
const SOCK_STREAM: usize = 1;
const ADDRESS_BYTES: usize = 110;
const LISTING_BYTES: usize = 4096;
const LAST_DESCRIPTOR: usize = 0x7fff_ffff;

#[repr(C)]
struct Poll {
    descriptor: i32,
    wanted: i16,
    found: i16,
}

/// A pipe whose writing end is open exactly as long as the monitor lives.
pub struct Lifeline {
    reading: i32,
    writing: i32,
}

impl Lifeline {
    pub fn new() -> Lifeline {
        let mut ends = [0i32; 2];
        let given = [ends.as_mut_ptr() as usize, O_CLOEXEC, 0, 0, 0];
        must(unsafe { call(kernel::PIPE2, given) }, "pipe2");
        Lifeline { reading: ends[0], writing: ends[1] }
    }

    /// In the child: it is killed when the monitor ends. If the monitor has ended before we could
    /// ask for that, the pipe tells.
    pub fn tie(&self) {
        close(self.writing as usize);
        must(control(PR_SET_PDEATHSIG, SIGKILL, 0), "the parent's death cannot be watched");
        let mut poll = Poll { descriptor: self.reading, wanted: 0, found: 0 };
        let now = [0i64; 2];
        let given = [&raw mut poll as usize, 1, now.as_ptr() as usize, 0, SIGNAL_SET_BYTES];
        unsafe { call(kernel::PPOLL, given) };
        if poll.found & POLLHUP != 0 {
            exit(FAILED);
        }
        close(self.reading as usize);
    }

    /// In the monitor: nothing else stays open, or the other end of what the task closes would
    /// never hear of it.
    fn keep(&self) {
        let writing = self.writing as usize;
        if writing > 3 {
            close_range(3, writing - 1);
        }
        close_range(writing + 1, LAST_DESCRIPTOR);
    }
}

/// Ends with the helper, whose number this is. If it has ended already, we end now.
pub fn end_with(parent: usize, signal: usize) {
    must(control(PR_SET_PDEATHSIG, signal, 0), "the parent's death cannot be watched");
    if unsafe { call(kernel::GETPPID, [0; 5]) } != parent as isize {
        exit(FAILED);
    }
}

pub fn end_at_once_with(parent: usize) {
    end_with(parent, SIGKILL);
}

/// Outside of the namespaces: waits for init, and ends as it did.
pub fn monitor(init: isize, lifeline: &Lifeline) -> ! {
    lifeline.keep();
    loop {
        let mut status = 0i32;
        let ended = wait(init, &mut status, 0);
        if ended == init {
            exit(code_of(status));
        }
        if ended != -EINTR {
            fail("the sandbox cannot be waited for", ended);
        }
    }
}

/// The first process of the namespace: reaps all, and ends with the task.
pub fn init(task: isize) -> ! {
    drop_capabilities();
    keep_privileges();
    // Nobody inside reads its memory, or follows its links.
    control(PR_SET_DUMPABLE, 0, 0);
    close_range(3, LAST_DESCRIPTOR);
    loop {
        let mut status = 0i32;
        let ended = wait(-1, &mut status, 0);
        if ended == task {
            exit(code_of(status));
        }
        if ended < 0 && ended != -EINTR {
            exit(FAILED);
        }
    }
}

/// Forks; the child goes on as the task. The parent ends with it, or on SIGTERM, which it also
/// gets when the helper dies, and takes all descendants of the task with it.
pub fn keep(parent: usize) {
    must(control(PR_SET_CHILD_SUBREAPER, 1, 0), "orphans cannot be adopted");
    let signals: u64 = 1 << (SIGTERM - 1) | 1 << (SIGCHLD - 1);
    mask(SIG_BLOCK, &signals);
    if parent != 0 {
        end_with(parent, SIGTERM);
    }
    let task = fork(0);
    must(task, "fork");
    if task == 0 {
        mask(SIG_UNBLOCK, &signals);
        return;
    }
    control(PR_SET_DUMPABLE, 0, 0);
    close_range(3, LAST_DESCRIPTOR);
    let mut code = None;
    while code.is_none() {
        let given = [&raw const signals as usize, 0, 0, SIGNAL_SET_BYTES, 0];
        let signal = unsafe { call(kernel::RT_SIGTIMEDWAIT, given) };
        code = reap(task, WNOHANG);
        if signal == SIGTERM as isize {
            break;
        }
    }
    loop {
        kill_children();
        let mut status = 0i32;
        let ended = wait(-1, &mut status, 0);
        if ended == task {
            code = Some(code_of(status));
        } else if ended < 0 && ended != -EINTR {
            exit(code.unwrap_or(FAILED)); // there is nobody left
        }
    }
}

/// The task's exit code, if it is among those that have ended.
fn reap(task: isize, options: usize) -> Option<usize> {
    loop {
        let mut status = 0i32;
        let ended = wait(-1, &mut status, options);
        if ended == task {
            return Some(code_of(status));
        }
        if ended <= 0 {
            return None;
        }
    }
}

/// Whoever they leave behind is ours next.
fn kill_children() {
    let file = open(c"/proc/thread-self/children", 0);
    if file < 0 {
        return; // a kernel without it: the helper kills the process group
    }
    let mut listing = [0u8; LISTING_BYTES];
    let given = [file as usize, listing.as_mut_ptr() as usize, LISTING_BYTES, 0, 0];
    let length = unsafe { call(kernel::READ, given) };
    close(file as usize);
    let mut number = 0usize;
    for byte in listing.iter().take(length.max(0) as usize) {
        match *byte {
            digit @ b'0'..=b'9' => number = number * 10 + usize::from(digit - b'0'),
            _ => {
                unsafe { call(kernel::KILL, [number, SIGKILL, 0, 0, 0]) };
                number = 0;
            }
        }
    }
}

/// The first byte tells that descriptors follow, and no request.
pub fn connect(number: usize, path: &CStr) {
    let text = path.to_bytes();
    let mut address = [0u8; ADDRESS_BYTES];
    if text.len() + 3 > ADDRESS_BYTES {
        return;
    }
    address[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    address[2..2 + text.len()].copy_from_slice(text);
    unsafe {
        let socket = call(kernel::SOCKET, [AF_UNIX, SOCK_STREAM | O_CLOEXEC, 0, 0, 0]);
        if socket < 0 {
            return;
        }
        let socket = socket as usize;
        let given = [socket, address.as_ptr() as usize, text.len() + 3, 0, 0];
        if call(kernel::CONNECT, given) >= 0 {
            call(kernel::WRITE, [socket, c"".as_ptr() as usize, 1, 0, 0]);
            call(kernel::DUP3, [socket, number, 0, 0, 0]);
        }
        close(socket);
    }
}

/// As `fork`, into new namespaces if `flags` names some.
pub fn fork(flags: usize) -> isize {
    unsafe { call(kernel::CLONE, [flags | SIGCHLD, 0, 0, 0, 0]) }
}

fn wait(process: isize, status: &mut i32, options: usize) -> isize {
    let given = [process as usize, status as *mut i32 as usize, options, 0, 0];
    unsafe { call(kernel::WAIT4, given) }
}

fn mask(how: usize, signals: &u64) {
    let given = [how, signals as *const u64 as usize, 0, SIGNAL_SET_BYTES, 0];
    must(unsafe { call(kernel::RT_SIGPROCMASK, given) }, "rt_sigprocmask");
}

fn close_range(first: usize, last: usize) {
    unsafe { call(kernel::CLOSE_RANGE, [first, last, 0, 0, 0]) };
}

/// As shells say it.
fn code_of(status: i32) -> usize {
    let signal = status & 0x7f;
    (if signal == 0 { (status >> 8) & 0xff } else { 128 + signal }) as usize
}
