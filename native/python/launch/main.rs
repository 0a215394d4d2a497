//! The launcher: a small program that the spawn helper puts before a task's own. It takes a few
//! steps and becomes the task; where bubblewrap makes the sandbox, once before it and once in it.
//!
//! ```text
//!   launch STEP… -- PROGRAM ARGUMENT…
//!
//!   join FILE              write itself into a control group
//!   score NUMBER           whom the kernel takes first when memory ends
//!   parent NUMBER          end when this process ends, which must have started us
//!   walls WORD… --         a sandbox of namespaces, in the words of bubblewrap (`walls`)
//!   keep NUMBER            stay until the task ends, and take all that it leaves along; NUMBER is
//!                          the parent to end with, or 0
//!   channel NUMBER PATH    a connection to this socket, under this number; without, if there is none
//!   limit KIND VALUE       a limit of this process and all that come of it, soft and hard
//!   ids USER GROUP         give up root, with every capability, for good
//!   landlock FILES SCOPES  open a rule set: the rights and the scopes that it handles
//!   path RIGHTS PATH       a rule of it; what is not there needs none
//!   filter DESCRIPTOR      the seccomp program that is found open under this number
//!   close DESCRIPTOR
//!   set NAME=VALUE         a variable for the task alone, which it does not have yet
//! ```
//!
//! Steps are taken in their order; rule set, filter and variables come last, since each would
//! hinder the steps before. Nothing is decided here: what is allowed is said by the words, which
//! Python writes (`drivers/sandbox`). It starts with every held task, so it allocates nothing,
//! has no dependencies, and does without the C library (`kernel`).
#![cfg_attr(freestanding, no_std, no_main)]
#![no_builtins]

mod kernel;
mod processes;
mod walls;

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr::null;

use kernel::call;

/// As `env` and `nice` say that they failed, and not the program that they start.
const FAILED: usize = 125;
const NOT_EXECUTABLE: usize = 126;
const NOT_FOUND: usize = 127;
const VARIABLES_MAX: usize = 8192;
const FILTER_BYTES_MAX: usize = 8192;
const INSTRUCTION_BYTES: usize = 8;
const CAPABILITIES_MAX: usize = 64;

const HERE: usize = -100isize as usize; // AT_FDCWD
const O_WRONLY: usize = 0o1;
const O_CLOEXEC: usize = 0o2_000_000;
const O_PATH: usize = 0o10_000_000;
const ENOENT: isize = 2;
const PR_SET_SECCOMP: usize = 22;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const SECCOMP_MODE_FILTER: usize = 2;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const LANDLOCK_RULE_PATH_BENEATH: usize = 1;
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
    parent: i32,
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const u8,
}

/// The words of the command line, one after another.
struct Words(*const *const c_char);

impl Words {
    fn next(&mut self) -> &'static CStr {
        let word = unsafe { *self.0 };
        if word.is_null() {
            fail("a word is missing", 0);
        }
        self.0 = unsafe { self.0.add(1) };
        unsafe { CStr::from_ptr(word) }
    }

    fn number(&mut self) -> u64 {
        let mut value: u64 = 0;
        for digit in self.next().to_bytes() {
            if !digit.is_ascii_digit() {
                fail("not a number", 0);
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        }
        value
    }
}

/// The variables of the program to come: ours, and those that were set.
struct Variables {
    pointers: [MaybeUninit<*const c_char>; VARIABLES_MAX],
    count: usize,
}

impl Variables {
    fn add(&mut self, variable: *const c_char) {
        if self.count == VARIABLES_MAX {
            fail("too many variables", 0);
        }
        self.pointers[self.count].write(variable);
        self.count += 1;
    }
}

#[cfg(not(freestanding))]
fn main() {
    launch(Words(&null()), &null());
}

/// `stack`: as the kernel leaves it, the count of the words first.
#[cfg(freestanding)]
#[unsafe(no_mangle)]
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    unsafe {
        let words = stack.add(1).cast::<*const c_char>();
        launch(Words(words.add(1)), words.add(*stack + 1))
    }
}

fn launch(mut words: Words, mut inherited: *const *const c_char) -> ! {
    let mut variables = Variables { pointers: [MaybeUninit::uninit(); VARIABLES_MAX], count: 0 };
    unsafe {
        while !(*inherited).is_null() {
            variables.add(*inherited);
            inherited = inherited.add(1);
        }
    }
    let (mut rules, mut filter) = (None, None);
    loop {
        match words.next().to_bytes() {
            b"--" => break,
            b"join" => must(write_to(words.next(), c"0"), "cannot join a control group"),
            b"score" => {
                write_to(c"/proc/self/oom_score_adj", words.next()); // best effort
            }
            b"parent" => processes::end_at_once_with(words.number() as usize),
            b"walls" => walls::enter(&mut words),
            b"keep" => processes::keep(words.number() as usize),
            b"channel" => processes::connect(words.number() as usize, words.next()),
            b"limit" => limit(words.number() as usize, words.number()),
            b"ids" => give_up_root(words.number() as usize, words.number() as usize),
            b"landlock" => rules = Some(open_rules(words.number(), words.number())),
            b"path" => allow(rules, words.number(), words.next()),
            b"filter" => filter = Some(words.number() as usize),
            b"close" => close(words.number() as usize),
            b"set" => variables.add(words.next().as_ptr()),
            _ => fail("an unknown step", 0),
        }
    }
    variables.add(null());
    if let Some(rules) = rules {
        enforce(rules);
    }
    if let Some(filter) = filter {
        load(filter);
    }
    let program = words.0 as usize;
    let path = words.next();
    let variables = variables.pointers.as_ptr() as usize;
    let error = unsafe { call(kernel::EXECVE, [path.as_ptr() as usize, program, variables, 0, 0]) };
    let code = if error == -ENOENT { NOT_FOUND } else { NOT_EXECUTABLE };
    end(b"cannot execute ", path.to_bytes(), error, code)
}

fn fail(what: &str, error: isize) -> ! {
    end(b"", what.as_bytes(), error, FAILED)
}

/// Says what went wrong, with the kernel's number of it.
fn end(what: &[u8], of: &[u8], error: isize, code: usize) -> ! {
    for text in [b"mycel-launch: ", what, of] {
        say(text);
    }
    if error < 0 {
        let number = error.unsigned_abs();
        say(b", error ");
        for place in [100, 10, 1] {
            if number >= place || place == 1 {
                say(&[b'0' + (number / place % 10) as u8]);
            }
        }
    }
    say(b"\n");
    exit(code)
}

fn exit(code: usize) -> ! {
    loop {
        unsafe { call(kernel::EXIT, [code, 0, 0, 0, 0]) };
    }
}

fn say(text: &[u8]) {
    unsafe { call(kernel::WRITE, [2, text.as_ptr() as usize, text.len(), 0, 0]) };
}

/// Ends the program if what was tried has failed.
fn must(result: isize, what: &str) {
    if result < 0 {
        fail(what, result);
    }
}

fn open(path: &CStr, flags: usize) -> isize {
    unsafe { call(kernel::OPENAT, [HERE, path.as_ptr() as usize, flags | O_CLOEXEC, 0, 0]) }
}

fn close(descriptor: usize) {
    unsafe { call(kernel::CLOSE, [descriptor, 0, 0, 0, 0]) };
}

fn control(option: usize, given: usize, more: usize) -> isize {
    unsafe { call(kernel::PRCTL, [option, given, more, 0, 0]) }
}

fn write_to(path: &CStr, text: &CStr) -> isize {
    let file = open(path, O_WRONLY);
    if file < 0 {
        return file;
    }
    let text = text.to_bytes();
    let given = [file as usize, text.as_ptr() as usize, text.len(), 0, 0];
    let written = unsafe { call(kernel::WRITE, given) };
    close(file as usize);
    written
}

fn limit(kind: usize, value: u64) {
    let both = [value, value];
    let given = [kind, both.as_ptr() as usize, 0, 0, 0];
    must(unsafe { call(kernel::SETRLIMIT, given) }, "setrlimit");
}

fn give_up_root(user: usize, group: usize) {
    drop_bounds();
    unsafe {
        must(call(kernel::SETGROUPS, [0; 5]), "setgroups");
        must(call(kernel::SETRESGID, [group, group, group, 0, 0]), "setresgid");
        must(call(kernel::SETRESUID, [user, user, user, 0, 0]), "setresuid");
    }
    drop_capabilities();
}

fn drop_capabilities() {
    drop_bounds();
    let header = [CAPABILITY_VERSION, 0];
    let none = [0u32; 6];
    let given = [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0];
    must(unsafe { call(kernel::CAPSET, given) }, "capset");
}

/// Beyond the last that this kernel knows it fails, and there is nothing to drop.
fn drop_bounds() {
    let _ = (0..CAPABILITIES_MAX).find(|one| control(PR_CAPBSET_DROP, *one, 0) < 0);
}

fn open_rules(files: u64, scopes: u64) -> usize {
    let set = RuleSet { files, network: 0, scopes };
    let given = [&raw const set as usize, size_of::<RuleSet>(), 0, 0, 0];
    let made = unsafe { call(kernel::LANDLOCK_CREATE_RULESET, given) };
    must(made, "landlock_create_ruleset");
    made as usize
}

fn allow(rules: Option<usize>, rights: u64, path: &CStr) {
    let Some(rules) = rules else { fail("a rule without a rule set", 0) };
    let file = open(path, O_PATH);
    if file < 0 {
        return; // what cannot be opened is not allowed, either
    }
    if add_rule(rules, rights, file) < 0 {
        // A file: folders alone can be given the rights of folders.
        must(add_rule(rules, rights & LANDLOCK_FILE_RIGHTS, file), "landlock_add_rule");
    }
    close(file as usize);
}

fn add_rule(rules: usize, rights: u64, file: isize) -> isize {
    let rule = PathBeneath { rights, parent: file as i32 };
    let given = [rules, LANDLOCK_RULE_PATH_BENEATH, &raw const rule as usize, 0, 0];
    unsafe { call(kernel::LANDLOCK_ADD_RULE, given) }
}

fn enforce(rules: usize) {
    keep_privileges();
    let enforced = unsafe { call(kernel::LANDLOCK_RESTRICT_SELF, [rules, 0, 0, 0, 0]) };
    must(enforced, "landlock_restrict_self");
    close(rules);
}

fn load(filter: usize) {
    let mut program = MaybeUninit::<[u8; FILTER_BYTES_MAX]>::uninit();
    let place = program.as_mut_ptr() as usize;
    let length = unsafe { call(kernel::READ, [filter, place, FILTER_BYTES_MAX, 0, 0]) };
    must(length, "the filter cannot be read");
    close(filter);
    let program = FilterProgram {
        length: (length as usize / INSTRUCTION_BYTES) as u16,
        instructions: program.as_ptr().cast(),
    };
    keep_privileges();
    must(control(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program as usize), "seccomp");
}

/// From now on no program gains rights by being started: the kernel asks for it.
fn keep_privileges() {
    must(control(PR_SET_NO_NEW_PRIVS, 1, 0), "no_new_privs");
}
