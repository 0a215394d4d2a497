//! The exceptions of `mycel.swarm.errors`, which both implementations raise.

use mycel_node::node::SendError;
use pyo3::{PyErr, import_exception};

import_exception!(mycel.swarm.errors, FrameTooLong);
import_exception!(mycel.swarm.errors, InvalidAddress);
import_exception!(mycel.swarm.errors, InvalidKey);
import_exception!(mycel.swarm.errors, InvalidSetting);
import_exception!(mycel.swarm.errors, InvalidToken);
import_exception!(mycel.swarm.errors, NodeStopped);
import_exception!(mycel.swarm.errors, Overloaded);

pub fn not_sent(error: SendError) -> PyErr {
    match error {
        SendError::Stopped => NodeStopped::new_err(error.to_string()),
        SendError::Overloaded => Overloaded::new_err(error.to_string()),
    }
}
