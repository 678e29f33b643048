//! The model in a list of layers: the computing and the gradients of a data-parallel worker.
//!
//! Gradients are the sums of weight gradients: all-reduces and reduce-scatters. Other collectives
//! belong to other forms of parallelism, which a [`Model`] cannot express; it says how many it left
//! out.

use gradwire_protocol::units::Span;

use super::file::{File, FileLayer, LayerCollective, Strategy};
use crate::fault::TextError;
use crate::model::{ForeignLayer, Model};
use crate::workload::CollectiveKind;

const LACKING: &str = "at least one layer needs ALLREDUCE or REDUCESCATTER and its bytes behind \
                       the compute time of its weight gradient";

impl Model {
    /// Reads a model from a list of layers of SimAI or ASTRA-sim (see [`crate::layers`]) and names
    /// it `name`.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line.
    pub fn from_layers(name: &str, text: &str) -> Result<Self, TextError> {
        let file = File::parse(text)?;
        let rows = rows(&file);
        Self::of_rows(name, rows, remarks(&file), LACKING)
    }
}

fn rows(file: &File) -> Vec<ForeignLayer> {
    let weight_first = matches!(file.strategy, Strategy::Data | Strategy::Dlrm);
    let row = |(number, layer): (usize, &FileLayer)| {
        let again = layer.again_from.unwrap_or(number);
        let again = sum(file.layers[again..number]
            .iter()
            .map(|one| one.forward.compute));
        // If weight gradients come first, the preceding input gradient belongs to the next layer.
        let input = match weight_first {
            true => file
                .layers
                .get(number + 1)
                .map(|behind| behind.input.compute),
            false => Some(layer.input.compute),
        };
        ForeignLayer {
            layer: layer.name.clone(),
            place: format!("line {}", layer.line),
            forward: layer.forward.compute,
            backward: again + input.unwrap_or_default() + layer.weight.compute,
            bytes: gradient(layer).map_or(0, |shared| shared.bytes.get()),
        }
    };
    file.layers.iter().enumerate().map(row).collect()
}

/// Returns the collective that sums weight gradients.
fn gradient(layer: &FileLayer) -> Option<LayerCollective> {
    let sums = [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter];
    let shared = layer.weight.collective;
    shared.filter(|shared| sums.contains(&shared.kind))
}

fn remarks(file: &File) -> Vec<String> {
    let mut remarks = vec!["parameters are bytes of weight gradients / 4".to_owned()];
    let others = file.layers.iter().flat_map(|layer| {
        let weight = layer
            .weight
            .collective
            .filter(|_| gradient(layer).is_none());
        [layer.forward.collective, layer.input.collective, weight]
    });
    let (count, bytes) = others
        .flatten()
        .fold((0_u64, 0_u64), |(count, bytes), one| {
            (count + 1, bytes.saturating_add(one.bytes.get()))
        });
    if count > 0 {
        remarks.push(format!(
            "{count} collectives that are not weight gradients ({bytes} bytes) are left out: every \
             worker is data-parallel"
        ));
    }
    let updates = sum(file.layers.iter().map(|layer| layer.update));
    if updates > Span::ZERO {
        let micros = updates.as_micros();
        remarks.push(format!("update times ({micros} us together) are left out"));
    }
    let without = file
        .layers
        .iter()
        .filter(|one| gradient(one).is_none())
        .count();
    if without > 0 {
        let layers = file.layers.len();
        remarks.push(format!("{without} of {layers} layers exchange no gradient"));
    }
    remarks
}

fn sum(spans: impl Iterator<Item = Span>) -> Span {
    spans.fold(Span::ZERO, |all, one| all + one)
}
