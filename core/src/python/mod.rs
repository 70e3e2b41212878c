//! The Python face: `sterna_core._core`.
//!
//! [`face::Engine`] is the Python class over [`crate::host::Host`], which owns an engine with the threads that the engine
//! itself does not have. Data frames pass as bytes; everything rare passes as JSON text, so no Python object is made per
//! message. Nothing of PyO3 reaches the layers below.

mod configuration_json;
mod errors;
mod executing;
mod face;
mod json;
mod selector;
#[cfg(feature = "sim")]
mod simulated;
mod snapshots;
mod store_error;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<face::Engine>()?;
    module.add_class::<snapshots::CutReader>()?;
    #[cfg(feature = "sim")]
    module.add_class::<simulated::SimulatedDisk>()?;
    module.add_class::<selector::Selector>()?;
    module.add_function(wrap_pyfunction!(selector::selector_check, module)?)?;
    module.add_function(wrap_pyfunction!(snapshots::cut_tables, module)?)?;
    Ok(())
}
