//! Models from files of other tools: layers with one gradient each.
//!
//! [`crate::layers`] and [`crate::chakra`] read the files; this file has the conditions that all of
//! them must meet.

use std::collections::BTreeMap;

use gradwire_protocol::units::Span;

use crate::fault::TextError;

use super::table::LAYERS_MAX;
use super::trained::{ELEMENT_BYTES, Gradient, Model, ModelLayer};

/// Longest forward or backward pass of a layer.
const PASS_MAX: Span = Span::from_millis(100_000);
/// Most bytes of a layer's gradient: 10^12 parameters.
const BYTES_MAX: u64 = 1_000_000_000_000 * ELEMENT_BYTES;

/// A layer of a file.
#[derive(Clone, Debug)]
pub(crate) struct ForeignLayer {
    /// Its name; several layers may have the same.
    pub(crate) layer: String,
    /// Its place, such as `line 3`.
    pub(crate) place: String,
    /// Time of its forward pass.
    pub(crate) forward: Span,
    /// Time from the gradient of the next layer until its own is ready.
    pub(crate) backward: Span,
    /// Exchanged bytes of its gradient; 0 where it only computes.
    pub(crate) bytes: u64,
}

impl Model {
    /// Makes the model of `rows`, in the order of the forward pass; `lacking` is the advice for a
    /// file whose gradients all have 0 bytes.
    pub(crate) fn of_rows(
        name: &str,
        rows: Vec<ForeignLayer>,
        remarks: Vec<String>,
        lacking: &str,
    ) -> Result<Self, TextError> {
        if rows.len() > LAYERS_MAX {
            let found = rows.len();
            let text = format!("{found} layers; a model has {LAYERS_MAX} at most");
            return Err(TextError::Whole(text));
        }
        if rows.iter().all(|row| row.bytes == 0) {
            let text = format!("no gradient is exchanged: {lacking}");
            return Err(TextError::Whole(text));
        }
        rows.iter().try_for_each(ForeignLayer::check)?;
        let names = names(&rows);
        let gradients = rows.iter().zip(&names).enumerate().rev();
        Ok(Self {
            name: name.to_owned(),
            times: format!("as {name} says"),
            gradients: gradients
                .map(|(at, (row, name))| Gradient {
                    name: name.clone(),
                    layer: at as u16,
                    parameters: row.bytes.div_ceil(ELEMENT_BYTES),
                    backward: row.backward,
                })
                .collect(),
            layers: rows
                .iter()
                .zip(&names)
                .map(|(row, name)| ModelLayer {
                    name: name.clone(),
                    forward: row.forward,
                    values: None,
                })
                .collect(),
            samples: None,
            remarks,
        })
    }
}

impl ForeignLayer {
    fn check(&self) -> Result<(), TextError> {
        let Self { place, layer, .. } = self;
        let beyond = |what| TextError::Whole(format!("{place}: layer `{layer}`: {what}"));
        if self.forward > PASS_MAX || self.backward > PASS_MAX {
            return Err(beyond(
                "its pass takes more than 100 s; are these its units?",
            ));
        }
        if self.bytes > BYTES_MAX {
            return Err(beyond("its gradient has more than 4 * 10^12 bytes"));
        }
        Ok(())
    }
}

/// Returns a name for each layer: its own, with its number where several layers share it.
fn names(rows: &[ForeignLayer]) -> Vec<String> {
    let mut alike: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *alike.entry(&row.layer).or_default() += 1;
    }
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let names = rows.iter().map(|row| {
        let number = taken.entry(&row.layer).or_default();
        *number += 1;
        match alike[row.layer.as_str()] {
            1 => row.layer.clone(),
            _ => format!("{}.{}", row.layer, *number - 1),
        }
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: &str, bytes: u64) -> ForeignLayer {
        ForeignLayer {
            layer: layer.to_owned(),
            place: "line 3".to_owned(),
            forward: Span::from_nanos(1),
            backward: Span::from_nanos(2),
            bytes,
        }
    }

    fn refusal(rows: Vec<ForeignLayer>) -> String {
        let model = Model::of_rows("m.txt", rows, Vec::new(), "give it some");
        model.expect_err("it is none").to_string()
    }

    #[test]
    fn layers_of_one_name_are_numbered_and_gradients_are_in_backward_order() {
        let rows = vec![
            row("in", 0),
            row("block", 8),
            row("block", 5),
            row("out", 4),
        ];
        let model = Model::of_rows("m.txt", rows, Vec::new(), "").expect("it is right");
        let names: Vec<&str> = model.layers.iter().map(|layer| &layer.name[..]).collect();
        assert_eq!(names, ["in", "block.0", "block.1", "out"]);
        let gradients = model.gradients.iter();
        let gradients: Vec<(&str, u16, u64)> = gradients
            .map(|one| (&one.name[..], one.layer, one.parameters))
            .collect();
        let wanted = [
            ("out", 3, 1),
            ("block.1", 2, 2),
            ("block.0", 1, 2),
            ("in", 0, 0),
        ];
        assert_eq!(gradients, wanted);
        assert_eq!(model.times, "as m.txt says");
    }

    #[test]
    fn what_no_simulation_ends_with_is_refused() {
        assert_eq!(
            refusal(vec![row("a", 0)]),
            "no gradient is exchanged: give it some"
        );
        assert!(refusal(vec![row("a", 1); 4_097]).starts_with("4097 layers; a model has 4096"));
        assert_eq!(
            refusal(vec![row("a", BYTES_MAX + 1)]),
            "line 3: layer `a`: its gradient has more than 4 * 10^12 bytes"
        );
        let slow = ForeignLayer {
            forward: Span::from_millis(100_001),
            ..row("a", 1)
        };
        assert!(refusal(vec![slow]).contains("takes more than 100 s"));
    }
}
