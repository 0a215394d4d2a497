//! A small program that the spawn helper puts before a task's own, once outside of the sandbox
//! and once in it: it takes a few steps and becomes the task.
//!
//! ```text
//!   launch STEP… -- PROGRAM ARGUMENT…
//!
//!   join FILE              write itself into a control group
//!   score NUMBER           whom the kernel takes first when memory ends
//!   ids USER GROUP         give up root, with every capability, for good
//!   landlock FILES SCOPES  open a rule set: the rights and the scopes that it handles
//!   path RIGHTS PATH       a rule of it; what is not there needs none
//!   filter DESCRIPTOR      the seccomp program that is found open under this number
//!   close DESCRIPTOR
//!   set NAME=VALUE         a variable for the task alone
//! ```
//!
//! Steps are taken in their order; rule set, filter and variables come last, since each would
//! hinder the steps before. Nothing is decided here: what is allowed is said by the words, which
//! Python writes (`drivers/sandbox`). It starts with every held task, so it is linked statically
//! where that is possible, allocates nothing, and has no dependencies.
#![cfg(target_os = "linux")]
#![no_main]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::mem::size_of;
use std::ptr::null;

/// As `env` and `nice` say that they failed, and not the program that they start.
const FAILED: c_int = 125;
const NOT_EXECUTABLE: c_int = 126;
const NOT_FOUND: c_int = 127;
const FILTER_INSTRUCTIONS_MAX: usize = 1024;
const CAPABILITIES_MAX: c_ulong = 64;

const O_WRONLY: c_int = 0o1;
const O_CLOEXEC: c_int = 0o2_000_000;
const O_PATH: c_int = 0o10_000_000;
const ENOENT: c_int = 2;
const PR_CAPBSET_DROP: c_int = 24;
const PR_SET_SECCOMP: c_int = 22;
const PR_SET_NO_NEW_PRIVS: c_int = 38;
const SECCOMP_MODE_FILTER: c_ulong = 2;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
// The same everywhere, as all calls since 2011.
const LANDLOCK_CREATE_RULESET: c_long = 444;
const LANDLOCK_ADD_RULE: c_long = 445;
const LANDLOCK_RESTRICT_SELF: c_long = 446;
const LANDLOCK_RULE_PATH_BENEATH: c_long = 1;
/// What can be allowed of a file that is no folder: execute, write, read, truncate, ioctl.
const LANDLOCK_FILE_RIGHTS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15;

#[repr(C)]
struct RuleSet {
    files: u64,
    network: u64,
    scopes: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    rights: u64,
    parent: c_int,
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const u64,
}

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(descriptor: c_int, into: *mut c_void, bytes: usize) -> isize;
    fn write(descriptor: c_int, from: *const c_void, bytes: usize) -> isize;
    fn close(descriptor: c_int) -> c_int;
    fn putenv(variable: *const c_char) -> c_int;
    fn setgroups(count: usize, groups: *const c_uint) -> c_int;
    fn setresgid(real: c_uint, effective: c_uint, saved: c_uint) -> c_int;
    fn setresuid(real: c_uint, effective: c_uint, saved: c_uint) -> c_int;
    fn capset(header: *const u32, sets: *const u32) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    fn perror(what: *const c_char);
    fn __errno_location() -> *mut c_int;
    fn _exit(status: c_int) -> !;
}

/// The words of the command line, one after another.
struct Words(*const *const c_char);

impl Words {
    fn next(&mut self) -> &'static CStr {
        let word = unsafe { *self.0 };
        if word.is_null() {
            fail(c"mycel-launch: a word is missing");
        }
        self.0 = unsafe { self.0.add(1) };
        unsafe { CStr::from_ptr(word) }
    }

    fn number(&mut self) -> u64 {
        let mut value: u64 = 0;
        for digit in self.next().to_bytes() {
            let Some(digit) = char::from(*digit).to_digit(10) else {
                fail(c"mycel-launch: not a number");
            };
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
        value
    }
}

#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, arguments: *const *const c_char) -> c_int {
    let mut words = Words(unsafe { arguments.add(1) });
    let (mut rules, mut filter) = (-1, -1);
    loop {
        match words.next().to_bytes() {
            b"--" => break,
            b"join" => {
                let joined = write_to(words.next(), c"0");
                must(joined, c"mycel-launch: cannot join a control group");
            }
            b"score" => {
                write_to(c"/proc/self/oom_score_adj", words.next()); // best effort
            }
            b"ids" => give_up_root(words.number(), words.number()),
            b"landlock" => rules = open_rules(words.number(), words.number()),
            b"path" => allow(rules, words.number(), words.next()),
            b"filter" => filter = words.number().cast_signed() as c_int,
            b"close" => {
                unsafe { close(words.number().cast_signed() as c_int) };
            }
            b"set" => {
                unsafe { putenv(words.next().as_ptr()) };
            }
            _ => fail(c"mycel-launch: an unknown step"),
        }
    }
    if rules >= 0 {
        enforce(rules);
    }
    if filter >= 0 {
        load(filter);
    }
    let program = words.0;
    unsafe {
        execv(words.next().as_ptr(), program);
        perror(*program);
        _exit(if *__errno_location() == ENOENT { NOT_FOUND } else { NOT_EXECUTABLE })
    }
}

fn fail(what: &CStr) -> ! {
    unsafe {
        perror(what.as_ptr());
        _exit(FAILED)
    }
}

/// Ends the program if what was tried has failed.
fn must(result: impl Into<i64>, what: &CStr) {
    if result.into() < 0 {
        fail(what);
    }
}

/// Negative if it failed.
fn write_to(path: &CStr, text: &CStr) -> i64 {
    unsafe {
        let file = open(path.as_ptr(), O_WRONLY | O_CLOEXEC);
        if file < 0 {
            return -1;
        }
        let written = write(file, text.as_ptr().cast(), text.to_bytes().len());
        close(file);
        written as i64
    }
}

fn give_up_root(user: u64, group: u64) {
    let (user, group) = (user as c_uint, group as c_uint);
    unsafe {
        // Beyond the last that this kernel knows it fails, and there is nothing to drop.
        for capability in 0..CAPABILITIES_MAX {
            if prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 {
                break;
            }
        }
        must(setgroups(0, null()), c"mycel-launch: setgroups");
        must(setresgid(group, group, group), c"mycel-launch: setresgid");
        must(setresuid(user, user, user), c"mycel-launch: setresuid");
        let none = [0u32; 6];
        must(capset([CAPABILITY_VERSION, 0].as_ptr(), none.as_ptr()), c"mycel-launch: capset");
    }
}

fn open_rules(files: u64, scopes: u64) -> c_int {
    let set = RuleSet { files, network: 0, scopes };
    let made = unsafe { syscall(LANDLOCK_CREATE_RULESET, &raw const set, size_of::<RuleSet>(), 0) };
    must(made, c"mycel-launch: landlock_create_ruleset");
    made as c_int
}

fn allow(rules: c_int, rights: u64, path: &CStr) {
    unsafe {
        let file = open(path.as_ptr(), O_PATH | O_CLOEXEC);
        if file < 0 {
            return; // what cannot be opened is not allowed, either
        }
        let mut rule = PathBeneath { rights, parent: file };
        let rule_ = &raw mut rule;
        if add_rule(rules, rule_) < 0 {
            // A file: folders alone can be given the rights of folders.
            (*rule_).rights = rights & LANDLOCK_FILE_RIGHTS;
            must(add_rule(rules, rule_), c"mycel-launch: landlock_add_rule");
        }
        close(file);
    }
}

unsafe fn add_rule(rules: c_int, rule: *const PathBeneath) -> c_long {
    unsafe { syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, rule, 0) }
}

fn enforce(rules: c_int) {
    keep_privileges();
    unsafe {
        must(syscall(LANDLOCK_RESTRICT_SELF, rules, 0), c"mycel-launch: landlock_restrict_self");
        close(rules);
    }
}

fn load(filter: c_int) {
    let mut instructions = [0u64; FILTER_INSTRUCTIONS_MAX];
    keep_privileges();
    unsafe {
        let room = size_of::<[u64; FILTER_INSTRUCTIONS_MAX]>();
        let length = read(filter, instructions.as_mut_ptr().cast(), room);
        must(length as i64, c"mycel-launch: the filter cannot be read");
        close(filter);
        let program = FilterProgram {
            length: (length as usize / size_of::<u64>()) as u16,
            instructions: instructions.as_ptr(),
        };
        let loaded = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program, 0, 0);
        must(loaded, c"mycel-launch: seccomp");
    }
}

/// From now on no program gains rights by being started: the kernel asks for it.
fn keep_privileges() {
    must(unsafe { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, c"mycel-launch: no_new_privs");
}
