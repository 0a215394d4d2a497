//! A sandbox of namespaces, told in the words of bubblewrap, for machines that have none.
//!
//! ```text
//!   clone into new namespaces ─▶ open what is to be bound ─▶ an empty root ─▶ the rest is detached
//!                                    ─▶ mounts, in the order of their words ─▶ fork: init, task
//! ```
//!
//! What is bound is opened while the machine's own root is there, and put into the new root when
//! that is gone: no path of the new root leads out of it, whatever links lie on the way. Needs
//! Linux 5.12 (`mount_setattr`), and root or user namespaces.

use core::ffi::CStr;

use crate::kernel::{self, call};
use crate::processes::{Lifeline, fork, init, monitor};
use crate::{Words, close, drop_capabilities, fail, must, write_to};

const HERE: usize = -100isize as usize; // AT_FDCWD
const PATH_BYTES_MAX: usize = 4096;
const TREES_MAX: usize = 512;
const ENOENT: isize = 2;

const NEW_MOUNTS: usize = 0x0002_0000;
const NEW_CGROUP: usize = 0x0200_0000;
const NEW_UTS: usize = 0x0400_0000;
const NEW_IPC: usize = 0x0800_0000;
const NEW_USER: usize = 0x1000_0000;
const NEW_PID: usize = 0x2000_0000;
const NEW_NET: usize = 0x4000_0000;

const MS_NOSUID: usize = 2;
const MS_NODEV: usize = 4;
const MS_NOEXEC: usize = 8;
const MS_REC_PRIVATE: usize = 0x4000 | 0x4_0000;
const MNT_DETACH: usize = 2;
const AT_EMPTY_PATH: usize = 0x1000;
const AT_RECURSIVE: usize = 0x8000;
const OPEN_TREE_CLONE: usize = 1;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;
const FSCONFIG_CMD_CREATE: usize = 6;
const ATTR_RDONLY: u64 = 1;
const ATTR_NOSUID: u64 = 2;
const ATTR_NODEV: u64 = 4;
const ATTR_NOEXEC: u64 = 8;
const O_CLOEXEC: usize = 0o2_000_000;
const O_CREATE: usize = 0o100 | 1;
const S_IFMT: u16 = 0o170_000;
const S_IFDIR: u16 = 0o040_000;
const STATX_TYPE: usize = 1;
/// Where `statx` puts the mode, in 256 bytes.
const STATX_MODE_AT: usize = 28;
const AF_INET: usize = 2;
const SOCK_DGRAM: usize = 2;
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCSIFFLAGS: usize = 0x8914;
const IFF_UP_RUNNING: u8 = 0x41;
/// In an `ifreq`, behind the name.
const FLAGS_AT: usize = 16;

const DEVICES: [&CStr; 6] =
    [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];
const DEVICE_LINKS: [(&CStr, &CStr); 6] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
    (c"/proc/kcore", c"/dev/core"),
    (c"pts/ptmx", c"/dev/ptmx"),
];

#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace: u64,
}

/// What is to be bound, in the order of the words.
struct Trees {
    descriptors: [i32; TREES_MAX],
    count: usize,
    next: usize,
}

impl Trees {
    fn add(&mut self, descriptor: isize) {
        if self.count == TREES_MAX {
            fail("too many mounts", 0);
        }
        self.descriptors[self.count] = descriptor as i32;
        self.count += 1;
    }

    /// Negative if it is not there.
    fn take(&mut self) -> isize {
        let descriptor = self.descriptors[self.next];
        self.next += 1;
        descriptor as isize
    }
}

/// One operation, as the words say it; `perms` and `size` are said before what they are of.
enum Step {
    Flag(usize),
    Bind { source: &'static CStr, target: &'static CStr, attributes: u64, optional: bool },
    Folder(&'static CStr),
    Link { to: &'static CStr, path: &'static CStr },
    Memory(&'static CStr),
    Processes(&'static CStr),
    Devices(&'static CStr),
    ReadOnly(&'static CStr),
    Permissions(&'static CStr),
    Size(&'static CStr),
    Enter(&'static CStr),
    HostName(&'static CStr),
    Nothing,
    End,
}

fn next(words: &mut Words) -> Step {
    let bind = |words: &mut Words, attributes, optional| {
        let source = words.next();
        Step::Bind { source, target: words.next(), attributes, optional }
    };
    match words.next().to_bytes() {
        b"--" => Step::End,
        b"--unshare-ipc" => Step::Flag(NEW_IPC),
        b"--unshare-pid" => Step::Flag(NEW_PID),
        b"--unshare-uts" => Step::Flag(NEW_UTS),
        b"--unshare-cgroup-try" => Step::Flag(NEW_CGROUP),
        b"--unshare-user" => Step::Flag(NEW_USER),
        b"--unshare-net" => Step::Flag(NEW_NET),
        b"--ro-bind" => bind(words, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, false),
        b"--bind" => bind(words, ATTR_NOSUID | ATTR_NODEV, false),
        b"--dev-bind-try" => bind(words, ATTR_NOSUID, true),
        b"--dir" => Step::Folder(words.next()),
        b"--symlink" => Step::Link { to: words.next(), path: words.next() },
        b"--tmpfs" => Step::Memory(words.next()),
        b"--proc" => Step::Processes(words.next()),
        b"--dev" => Step::Devices(words.next()),
        b"--remount-ro" => Step::ReadOnly(words.next()),
        b"--perms" => Step::Permissions(words.next()),
        b"--size" => Step::Size(words.next()),
        b"--chdir" => Step::Enter(words.next()),
        b"--hostname" => Step::HostName(words.next()),
        // We always end with the parent, and leave every capability behind.
        b"--die-with-parent" => Step::Nothing,
        b"--cap-drop" | b"--cap-add" => {
            words.next();
            Step::Nothing
        }
        _ => fail("an unknown word of the sandbox", 0),
    }
}

/// Returns as the task's own process, behind the walls.
pub fn enter(words: &mut Words) {
    let mut flags = NEW_MOUNTS | NEW_PID;
    let first = Words(words.0);
    loop {
        match next(words) {
            Step::Flag(flag) => flags |= flag,
            Step::End => break,
            _ => {}
        }
    }
    let user = unsafe { call(kernel::GETEUID, [0; 5]) } as usize;
    let group = unsafe { call(kernel::GETEGID, [0; 5]) } as usize;
    let lifeline = Lifeline::new();
    let child = fork(flags);
    must(child, "the kernel refuses new namespaces");
    if child > 0 {
        monitor(child, &lifeline);
    }
    lifeline.tie();
    if flags & NEW_USER != 0 {
        must(write_to(c"/proc/self/setgroups", c"deny"), "setgroups cannot be denied");
        map(c"/proc/self/uid_map", user);
        map(c"/proc/self/gid_map", group);
    }
    if flags & NEW_NET != 0 {
        raise_loopback();
    }
    let folder = build(first);
    let task = fork(0);
    must(task, "fork");
    if task > 0 {
        init(task);
    }
    if flags & NEW_USER != 0 {
        drop_capabilities(); // root needs them once more, to give up root
    }
    if let Some(folder) = folder {
        must(change_folder(folder), "the working folder cannot be entered");
    }
}

/// Of all ids, the namespace knows our own.
fn map(path: &CStr, id: usize) {
    let mut line = Text::new();
    line.number(id);
    line.add(b" ");
    line.number(id);
    line.add(b" 1");
    must(write_to(path, line.as_c()), "ids cannot be mapped");
}

fn raise_loopback() {
    let socket = unsafe { call(kernel::SOCKET, [AF_INET, SOCK_DGRAM | O_CLOEXEC, 0, 0, 0]) };
    must(socket, "no socket for the loopback device");
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let asked = ioctl(socket, SIOCGIFFLAGS, request.as_mut_ptr() as usize);
    must(asked, "the loopback device is not there");
    request[FLAGS_AT] |= IFF_UP_RUNNING;
    let raised = ioctl(socket, SIOCSIFFLAGS, request.as_mut_ptr() as usize);
    must(raised, "the loopback device cannot be raised");
    close(socket as usize);
}

/// A root made of what the words say, and nothing else. The folder to be entered, if one is named.
fn build(words: Words) -> Option<&'static CStr> {
    let umask = unsafe { call(kernel::UMASK, [0; 5]) } as usize;
    must(mount(None, c"/", None, MS_REC_PRIVATE, None), "mounts cannot be made private");
    let mut trees = Trees { descriptors: [-1; TREES_MAX], count: 0, next: 0 };
    gather(Words(words.0), &mut trees);
    change_root();
    let folder = arrange(words, &mut trees);
    unsafe { call(kernel::UMASK, [umask, 0, 0, 0, 0]) };
    folder
}

/// Opens what is to be bound.
fn gather(mut words: Words, trees: &mut Trees) {
    loop {
        match next(&mut words) {
            Step::Bind { source, attributes, optional, .. } => {
                trees.add(tree(source, attributes, optional));
            }
            Step::Processes(_) => trees.add(processes()),
            Step::Devices(_) => {
                for device in DEVICES {
                    trees.add(tree(device, ATTR_NOSUID | ATTR_NOEXEC, false));
                }
            }
            Step::End => return,
            _ => {}
        }
    }
}

fn tree(source: &CStr, attributes: u64, optional: bool) -> isize {
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | O_CLOEXEC;
    let opened = unsafe { call(kernel::OPEN_TREE, [HERE, source.as_ptr() as usize, flags, 0, 0]) };
    if opened == -ENOENT && optional {
        return opened;
    }
    must_of(opened, "cannot bind ", source);
    let set = set_attributes(opened as usize, c"", AT_EMPTY_PATH | AT_RECURSIVE, attributes);
    must_of(set, "cannot protect ", source);
    opened
}

/// The kernel gives it to a namespace only while that still sees another: before the root changes.
fn processes() -> isize {
    let opened = unsafe { call(kernel::FSOPEN, [c"proc".as_ptr() as usize, 1, 0, 0, 0]) };
    must(opened, "the kernel refuses a list of processes");
    let given = [opened as usize, FSCONFIG_CMD_CREATE, 0, 0, 0];
    must(unsafe { call(kernel::FSCONFIG, given) }, "the kernel refuses a list of processes");
    let attributes = (ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC) as usize;
    let made = unsafe { call(kernel::FSMOUNT, [opened as usize, 1, attributes, 0, 0]) };
    must(made, "the kernel refuses a list of processes");
    close(opened as usize);
    made
}

fn change_root() {
    let place = c"/tmp";
    let options = Some(c"mode=0755");
    must(
        mount(Some(c"tmpfs"), place, Some(c"tmpfs"), MS_NOSUID | MS_NODEV, options),
        "the kernel refuses a new root",
    );
    must(change_folder(place), "the new root cannot be entered");
    let here = c".".as_ptr() as usize;
    must(unsafe { call(kernel::PIVOT_ROOT, [here, here, 0, 0, 0]) }, "pivot_root");
    must(unsafe { call(kernel::UMOUNT2, [here, MNT_DETACH, 0, 0, 0]) }, "the old root stays");
    must(change_folder(c"/"), "the new root cannot be entered");
}

fn arrange(mut words: Words, trees: &mut Trees) -> Option<&'static CStr> {
    let (mut permissions, mut size, mut folder) = (None, None, None);
    loop {
        match next(&mut words) {
            Step::Permissions(mode) => {
                permissions = Some(mode);
                continue;
            }
            Step::Size(bytes) => {
                size = Some(bytes);
                continue;
            }
            Step::Bind { target, .. } => place(trees.take(), target),
            Step::Folder(path) => make_folders(path, permissions.map_or(0o755, octal), true),
            Step::Link { to, path } => link(to, path),
            Step::Memory(path) => memory(path, permissions, size),
            Step::Processes(path) => place(trees.take(), path),
            Step::Devices(path) => devices(path, trees),
            Step::ReadOnly(path) => {
                must_of(set_attributes(HERE, path, 0, ATTR_RDONLY), "cannot protect ", path);
            }
            Step::HostName(name) => {
                let length = name.to_bytes().len();
                let given = [name.as_ptr() as usize, length, 0, 0, 0];
                must(unsafe { call(kernel::SETHOSTNAME, given) }, "sethostname");
            }
            Step::Enter(path) => folder = Some(path),
            Step::End => return folder,
            Step::Flag(_) | Step::Nothing => {}
        }
        (permissions, size) = (None, None);
    }
}

/// Puts a tree at its place, which is made if it is not there.
fn place(tree: isize, target: &CStr) {
    if tree < 0 {
        return;
    }
    if is_folder(tree) {
        make_folders(target, 0o755, true);
    } else {
        make_folders(target, 0o755, false);
        let given = [HERE, target.as_ptr() as usize, O_CREATE | O_CLOEXEC, 0o444, 0];
        let made = unsafe { call(kernel::OPENAT, given) };
        if made >= 0 {
            close(made as usize);
        }
    }
    let path = target.as_ptr() as usize;
    let given = [tree as usize, c"".as_ptr() as usize, HERE, path, MOVE_MOUNT_F_EMPTY_PATH];
    must_of(unsafe { call(kernel::MOVE_MOUNT, given) }, "cannot mount ", target);
    close(tree as usize);
}

fn memory(path: &CStr, permissions: Option<&CStr>, size: Option<&CStr>) {
    make_folders(path, 0o755, true);
    let mut options = Text::new();
    options.add(b"mode=");
    options.add(permissions.map_or(b"0755", CStr::to_bytes));
    if let Some(bytes) = size {
        options.add(b",size=");
        options.add(bytes.to_bytes());
    }
    let flags = MS_NOSUID | MS_NODEV;
    let made = mount(Some(c"tmpfs"), path, Some(c"tmpfs"), flags, Some(options.as_c()));
    must_of(made, "cannot mount ", path);
}

fn devices(path: &CStr, trees: &mut Trees) {
    if path != c"/dev" {
        fail("devices belong into /dev", 0);
    }
    memory(path, None, None);
    for device in DEVICES {
        place(trees.take(), device);
    }
    make_folders(c"/dev/shm", 0o755, true);
    make_folders(c"/dev/pts", 0o755, true);
    let options = Some(c"newinstance,ptmxmode=0666,mode=620");
    let flags = MS_NOSUID | MS_NOEXEC;
    let made = mount(Some(c"devpts"), c"/dev/pts", Some(c"devpts"), flags, options);
    must_of(made, "cannot mount ", c"/dev/pts");
    for (to, path) in DEVICE_LINKS {
        link(to, path);
    }
}

fn link(to: &CStr, path: &CStr) {
    make_folders(path, 0o755, false);
    let given = [to.as_ptr() as usize, HERE, path.as_ptr() as usize, 0, 0];
    must_of(unsafe { call(kernel::SYMLINKAT, given) }, "cannot link ", path);
}

/// The folders on the way, and the last if it is to be one. What is there stays as it is; what
/// cannot be made is missed by what is put there.
fn make_folders(path: &CStr, mode: usize, itself: bool) {
    let bytes = path.to_bytes();
    let mut way = Text::new();
    for (index, byte) in bytes.iter().enumerate() {
        if *byte == b'/' && index > 0 {
            make_folder(way.as_c(), 0o755);
        }
        way.add(&[*byte]);
    }
    if itself {
        make_folder(path, mode);
    }
}

fn make_folder(path: &CStr, mode: usize) {
    unsafe { call(kernel::MKDIRAT, [HERE, path.as_ptr() as usize, mode, 0, 0]) };
}

fn is_folder(file: isize) -> bool {
    let mut found = [0u8; 256];
    let (empty, place) = (c"".as_ptr() as usize, found.as_mut_ptr() as usize);
    let given = [file as usize, empty, AT_EMPTY_PATH, STATX_TYPE, place];
    must(unsafe { call(kernel::STATX, given) }, "statx");
    let mode = u16::from_ne_bytes([found[STATX_MODE_AT], found[STATX_MODE_AT + 1]]);
    mode & S_IFMT == S_IFDIR
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: usize,
    options: Option<&CStr>,
) -> isize {
    let place = |text: Option<&CStr>| text.map_or(0, |text| text.as_ptr() as usize);
    let target = target.as_ptr() as usize;
    unsafe { call(kernel::MOUNT, [place(source), target, place(kind), flags, place(options)]) }
}

fn set_attributes(folder: usize, path: &CStr, flags: usize, set: u64) -> isize {
    let attributes = Attributes { set, clear: 0, propagation: 0, namespace: 0 };
    let place = &raw const attributes as usize;
    let given = [folder, path.as_ptr() as usize, flags, place, size_of::<Attributes>()];
    unsafe { call(kernel::MOUNT_SETATTR, given) }
}

fn ioctl(file: isize, request: usize, place: usize) -> isize {
    unsafe { call(kernel::IOCTL, [file as usize, request, place, 0, 0]) }
}

fn change_folder(path: &CStr) -> isize {
    unsafe { call(kernel::CHDIR, [path.as_ptr() as usize, 0, 0, 0, 0]) }
}

fn octal(text: &CStr) -> usize {
    text.to_bytes().iter().fold(0, |value, digit| value * 8 + usize::from(digit.wrapping_sub(b'0')))
}

fn must_of(result: isize, what: &str, path: &CStr) {
    if result < 0 {
        crate::end(what.as_bytes(), path.to_bytes(), result, crate::FAILED);
    }
}

/// A short text for the kernel.
struct Text {
    bytes: [u8; PATH_BYTES_MAX],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; PATH_BYTES_MAX], length: 0 }
    }

    fn add(&mut self, more: &[u8]) {
        for byte in more {
            if self.length + 1 >= PATH_BYTES_MAX {
                fail("a path is too long", 0);
            }
            self.bytes[self.length] = *byte;
            self.length += 1;
        }
    }

    fn number(&mut self, value: usize) {
        if value >= 10 {
            self.number(value / 10);
        }
        self.add(&[b'0' + (value % 10) as u8]);
    }

    fn as_c(&self) -> &CStr {
        unsafe { CStr::from_ptr(self.bytes.as_ptr().cast()) }
    }
}
