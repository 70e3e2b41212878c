//! Errors at the boundary: each becomes one of the Python classes in `sterna_core.errors`, converted here and nowhere else.

use crate::engine::Refused;
use crate::proto::ErrorCode;
use crate::selector::SelectorError;
use crate::state::StateError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Makes the exception `sterna_core.errors.<class>` from its arguments.
fn raise<'py>(py: Python<'py>, class: &str, arguments: Bound<'py, PyTuple>) -> PyErr {
    let made = py
        .import("sterna_core.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1(arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// A refusal of the engine.
pub(super) fn refused(py: Python<'_>, error: &Refused) -> PyErr {
    let code = error.code().as_str_name();
    match (
        code,
        error.subject.as_str(),
        error.message.as_str(),
        error.remedy.as_str(),
    )
        .into_pyobject(py)
    {
        Ok(arguments) => raise(py, "EngineError", arguments),
        Err(error) => error,
    }
}

/// An error that is a defect of ours or a misuse by the host.
pub(super) fn internal(py: Python<'_>, message: &str) -> PyErr {
    refused(py, &crate::engine::refuse(ErrorCode::Internal, "engine", message))
}

/// A store that cannot be opened or used.
pub(super) fn store(py: Python<'_>, error: &StateError) -> PyErr {
    let (code, remedy) = super::store_error::classified(error);
    match (code, error.to_string(), remedy).into_pyobject(py) {
        Ok(arguments) => raise(py, "StoreError", arguments),
        Err(error) => error,
    }
}

/// A selector that cannot be parsed.
pub(super) fn selector(py: Python<'_>, error: &SelectorError) -> PyErr {
    match (error.message(), error.offset(), error.render()).into_pyobject(py) {
        Ok(arguments) => raise(py, "SelectorError", arguments),
        Err(error) => error,
    }
}
