//! Counters in a form that is no platform's: a JSON list of one object per queue,
//! `{"port": "Ethernet0", "queue": 3, "sent": 10, "marked": 2, "early": 1, "full": 0}`.
//!
//! Every dialect accepts it, for switches whose own export no dialect reads, and for
//! the simulator. `marked` and `early` may be left out or null where a switch does not count them.

use super::QueueCount;
use crate::reading::ReadError;

/// The counters of a text in the neutral form; `None` when it is of another form: no list, or a
/// list whose first item names no port.
///
/// # Errors
/// [`ReadError`] names the line and its mistake.
pub fn read(text: &str) -> Option<Result<Vec<QueueCount>, ReadError>> {
    let list: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    list.first()
        .is_none_or(|row| row.get("port").is_some())
        .then(|| rows(text))
}

fn rows(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    serde_json::from_str(text).map_err(|error| {
        let what = "counters in the neutral form";
        ReadError::at(what, error.line(), error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_queues_is_read_and_another_list_is_left_to_the_dialect() {
        let text = r#"[{"port": "eth0", "queue": 3, "sent": 10, "marked": 2, "full": 1}]"#;
        let count = QueueCount {
            port: "eth0".to_owned(),
            queue: 3,
            sent: 10,
            marked: Some(2),
            early: None,
            full: 1,
        };
        assert_eq!(read(text), Some(Ok(vec![count])));
        assert_eq!(read(r#"[{"kind": "red", "dev": "eth0"}]"#), None);
        assert_eq!(read("Ethernet0 UC3 10"), None);
    }

    #[test]
    fn a_field_that_is_missing_or_unknown_is_named_with_its_line() {
        let error = |text| match read(text) {
            Some(Err(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let missing = error("[{\"port\": \"a\", \"queue\": 1,\n\"sent\": 1}]");
        assert!(
            missing.contains("line 2: missing field `full`"),
            "{missing}"
        );
        let unknown = error("[{\"port\": \"a\", \"lost\": 1}]");
        assert!(unknown.contains("unknown field `lost`"), "{unknown}");
    }
}
