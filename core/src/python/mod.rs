//! The Python face of the engine: the compiled module `sterna_core._core`.

use pyo3::prelude::*;

/// The engine of the Sterna broker.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
