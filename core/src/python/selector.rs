//! Selectors for Python: checking a text, and matching it against plain values in tests and audits.

use super::errors;
use crate::selector::{self, Fields, HeaderField, Scope, Value, Verdict};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use rustc_hash::FxHashMap;

/// Raises `SelectorError` if `text` is no selector; `undelivered`: by the rules of `$sys.undelivered`.
#[pyfunction]
#[pyo3(signature = (text, undelivered = false))]
pub(super) fn selector_check(py: Python<'_>, text: &str, undelivered: bool) -> PyResult<()> {
    selector::Selector::parse_in(text, scope(undelivered))
        .map(|_| ())
        .map_err(|error| errors::selector(py, &error))
}

const fn scope(undelivered: bool) -> Scope {
    if undelivered {
        Scope::Undelivered
    } else {
        Scope::Ordinary
    }
}

/// A parsed selector.
#[pyclass(frozen, module = "sterna_core._core")]
pub(super) struct Selector {
    inner: selector::Selector,
}

enum Plain {
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(String),
}

/// Values by name, header fields among them under their JMS names.
struct Named(FxHashMap<String, Plain>);

impl Named {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        Some(match self.0.get(name)? {
            Plain::Bool(value) => Value::Bool(*value),
            Plain::Long(value) => Value::Long(*value),
            Plain::Double(value) => Value::Double(*value),
            Plain::Text(value) => Value::Text(value.as_str()),
        })
    }
}

impl Fields for Named {
    fn header(&self, field: HeaderField) -> Option<Value<'_>> {
        self.get(header_name(field))
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.get(name)
    }
}

const fn header_name(field: HeaderField) -> &'static str {
    match field {
        HeaderField::DeliveryMode => "JMSDeliveryMode",
        HeaderField::Priority => "JMSPriority",
        HeaderField::MessageId => "JMSMessageID",
        HeaderField::Timestamp => "JMSTimestamp",
        HeaderField::CorrelationId => "JMSCorrelationID",
        HeaderField::Type => "JMSType",
        HeaderField::Destination => "JMSDestination",
    }
}

#[pymethods]
impl Selector {
    /// Parses `text`; raises `SelectorError` if it is no selector.
    #[new]
    #[pyo3(signature = (text, undelivered = false))]
    fn new(py: Python<'_>, text: &str, undelivered: bool) -> PyResult<Self> {
        let inner =
            selector::Selector::parse_in(text, scope(undelivered)).map_err(|error| errors::selector(py, &error))?;
        Ok(Self { inner })
    }

    /// Whether it selects a message with these header fields and properties; `None` is NULL, whole numbers are longs.
    fn matches(&self, fields: &Bound<'_, PyDict>) -> PyResult<bool> {
        Ok(self.inner.matches(&named(fields)?))
    }

    /// How the condition comes out for these: "true", "false", "unknown", or "failed".
    fn evaluate(&self, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
        Ok(match self.inner.evaluate(&named(fields)?) {
            Verdict::True => "true",
            Verdict::False => "false",
            Verdict::Unknown => "unknown",
            Verdict::Failed => "failed",
        })
    }

    /// The text it was made from.
    #[getter]
    fn text(&self) -> &str {
        self.inner.text()
    }
}

fn named(fields: &Bound<'_, PyDict>) -> PyResult<Named> {
    let mut named = FxHashMap::default();
    for (name, value) in fields {
        let name: String = name.extract()?;
        if !value.is_none() {
            named.insert(name, plain(&value)?);
        }
    }
    Ok(Named(named))
}

fn plain(value: &Bound<'_, PyAny>) -> PyResult<Plain> {
    // A Python bool is an int, too, so it is asked first.
    if value.is_instance_of::<PyBool>() {
        Ok(Plain::Bool(value.extract()?))
    } else if value.is_instance_of::<PyInt>() {
        Ok(Plain::Long(value.extract()?))
    } else if value.is_instance_of::<PyFloat>() {
        Ok(Plain::Double(value.extract()?))
    } else if value.is_instance_of::<PyString>() {
        Ok(Plain::Text(value.extract()?))
    } else {
        let name = value.get_type().name()?.to_string();
        Err(pyo3::exceptions::PyTypeError::new_err(format!(
            "a field is a bool, int, float or str, not {name}"
        )))
    }
}
