//! A dictionary of Python as the settings of a run.

use dpsgd::RawSettings;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

use crate::errors::refused;

/// Reads settings; names are those of the flags with `_` for `-`, and `None` is a setting not given.
pub fn read(given: &Bound<'_, PyDict>) -> PyResult<RawSettings> {
    table(given)?.try_into().map_err(|error: toml::de::Error| refused(error.message()))
}

fn table(given: &Bound<'_, PyDict>) -> PyResult<Table> {
    let mut table = Table::new();
    for (name, value) in given.iter() {
        if !value.is_none() {
            let name: String = name.extract()?;
            let value = value_of(&name, &value)?;
            table.insert(name.replace('_', "-"), value);
        }
    }
    Ok(table)
}

fn value_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::String(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if let Ok(inner) = value.cast::<PyDict>() {
        return Ok(Value::Table(table(inner)?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| value_of(name, &item?)).collect::<PyResult<Vec<_>>>()?;
        return Ok(Value::Array(items));
    }
    if value.is_instance_of::<PyInt>() || value.hasattr("__index__")? {
        let whole = value.extract::<i64>();
        return whole.map(Value::Integer).map_err(|_| refused(format!("{name} = {value}: too large")));
    }
    // Numbers of other libraries.
    if value.hasattr("__float__")? {
        return Ok(Value::Float(value.extract()?));
    }
    Err(PyTypeError::new_err(format!("{name}: {} is not a setting", value.get_type().name()?)))
}

/// Whether any noise or target is given, at the top or in every phase.
pub fn has_noise(raw: &RawSettings) -> bool {
    let given = |raw: &RawSettings| {
        raw.sigma.is_some() || raw.noise_multiplier.is_some() || raw.target_epsilon.is_some()
    };
    given(raw) || raw.phase.iter().any(given)
}
