//! Long-lived streams of frames with admitted peers.
//!
//! `behaviour` and `handler` open and accept them on connections, `stream` is what the
//! application holds, `reader` and `writer` move the frames that `frame` describes.

pub mod behaviour;
pub mod frame;
mod handler;
mod reader;
pub mod stream;
mod writer;
