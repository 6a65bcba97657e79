//! Checks of single values that both readers of configurations share.

use crate::error::ModelError;

/// Upper bound on any size in a configuration: large enough for every model, small enough that
/// products fit in `usize`.
pub(crate) const MAX_SIZE: usize = 1 << 24;

/// A size from 1 to [`MAX_SIZE`].
pub(crate) fn checked_size(field: &str, value: u64) -> Result<usize, ModelError> {
    match usize::try_from(value) {
        Ok(value) if (1..=MAX_SIZE).contains(&value) => Ok(value),
        _ => Err(ModelError::field(field, format!("{value} is not between 1 and {MAX_SIZE}"))),
    }
}

/// A number that is finite and above 0 as `f32`.
pub(crate) fn positive(field: &str, value: f64) -> Result<f32, ModelError> {
    let narrow = value as f32;
    if narrow.is_finite() && narrow > 0.0 {
        return Ok(narrow);
    }
    Err(ModelError::field(field, format!("{value} is not a positive number")))
}

/// The width of a head, where the file does not state it.
pub(crate) fn split_heads(field: &str, dim: usize, heads: usize) -> Result<usize, ModelError> {
    if !dim.is_multiple_of(heads) {
        return Err(ModelError::field(field, format!("{heads} heads do not divide a width of {dim}")));
    }
    Ok(dim / heads)
}

/// The value of a field that must be there.
pub(crate) fn required<T>(field: impl Into<String>, value: Option<T>) -> Result<T, ModelError> {
    value.ok_or_else(|| ModelError::field(field, "missing"))
}

/// The fault of a window in a family without local layers.
pub(crate) fn unsupported_window(field: impl Into<String>, window: usize) -> ModelError {
    ModelError::field(field, format!("a window of {window} positions is not supported in this architecture"))
}

/// The factor on attention scores whose heads have `width` values.
pub(crate) fn score_scale(width: f32) -> f32 {
    1.0 / width.sqrt()
}
