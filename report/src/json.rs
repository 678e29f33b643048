//! Values as lines of JSON.

use serde::Serialize;

/// A value as one line of JSON, without the line's end.
pub fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys are text and all values have a form")
}
