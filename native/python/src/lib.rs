//! The Python face of `mycel-node`: conversions, and nothing that decides anything.
//!
//! No network thread ever takes the GIL: events wait in the node's queue, an eventfd
//! wakes asyncio, and one `drain()` takes everything that is there.

mod convert;
mod doorbell;
mod errors;
mod files;
mod keys;
mod node;
mod slice;
mod stream;
mod tokens;

use std::sync::OnceLock;

use pyo3::prelude::*;
use tokio::runtime::Runtime;

/// More threads cost more in hand-overs than they give on small machines, and the node's
/// work is mostly waiting.
const WORKER_THREADS: usize = 1;

/// One runtime for all nodes of the process.
fn runtime() -> std::io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let started = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_name("mycel-network")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| started))
}

/// The program in `launch`, compiled for this machine; empty where there is none.
#[pyfunction]
fn launcher() -> &'static [u8] {
    include_bytes!(concat!(env!("OUT_DIR"), "/launch"))
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        files::begin_write_back,
        keys::{identity, public_key_of},
        launcher,
        node::Node,
        slice::Slice,
        stream::Stream,
        tokens::{
            bind_token, delegate_token, inspect_token, invite_terms, issue_delegated_token,
            issue_token, narrow_token, read_revocation, sign_revocation,
        },
    };
}
