//! Compiles the small program in `launch` and lets the extension carry it: so it travels in every
//! wheel, and a worker needs nothing beside its package. Empty where it is not made for.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: &str = "launch";
/// See `native/node/src/lib.rs`: made anew for each checkout that shares a folder of builds.
const _: Option<&str> = option_env!("MYCEL_CHECKOUT");

fn main() {
    println!("cargo:rerun-if-changed={SOURCES}");
    println!("cargo:rerun-if-env-changed=MYCEL_CHECKOUT");
    println!("cargo:rustc-check-cfg=cfg(freestanding)");
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("launch");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let processor = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if system != "linux" || !["x86_64", "aarch64"].contains(&processor.as_str()) {
        std::fs::write(&made, b"").expect("the build folder can be written");
        return;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets it"));
    rustc.args(["--edition", "2024", "--crate-name", "launch", "--crate-type", "bin"]);
    rustc.arg(format!("{SOURCES}/main.rs")).arg("-o").arg(made);
    rustc.args(["--target", &env::var("TARGET").expect("cargo sets it")]);
    rustc.args(["--cfg", "freestanding", "-C", "opt-level=s", "-C", "panic=abort"]);
    rustc.args(["-C", "strip=symbols", "-C", "relocation-model=static"]);
    rustc.args(["-C", "target-feature=+crt-static"]);
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-no-pie"] {
        rustc.args(["-C", &format!("link-arg={argument}")]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    assert!(rustc.status().is_ok_and(|one| one.success()), "{SOURCES} cannot be compiled");
}
