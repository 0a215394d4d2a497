//! Compiles the small program of `native/launch` and lets the extension carry it: so it travels
//! in every wheel, and a worker needs nothing beside its package.
//!
//! Linked statically it starts in half the time; where there is no static C library, it is linked
//! as usual.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "../launch/src/main.rs";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("launch");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        std::fs::write(&made, b"").expect("the build folder can be written");
        return;
    }
    let compiled = compile(&made, true) || compile(&made, false);
    assert!(compiled, "{SOURCE} cannot be compiled");
}

fn compile(made: &PathBuf, is_static: bool) -> bool {
    let linking =
        if is_static { "target-feature=+crt-static" } else { "target-feature=-crt-static" };
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets it"));
    rustc.args([
        "--edition",
        "2024",
        "--crate-name",
        "launch",
        "--crate-type",
        "bin",
        SOURCE,
        "-o",
    ]);
    rustc.arg(made).args(["--target", &env::var("TARGET").expect("cargo sets it")]);
    rustc.args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols", "-C", "lto=fat"]);
    // At a fixed place: nothing has to be relocated at the start.
    rustc.args(["-C", "relocation-model=static", "-C", linking]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    rustc.status().is_ok_and(|status| status.success())
}
