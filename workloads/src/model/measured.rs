//! Measured times: the moment at which each gradient was ready, on a V100.
//!
//! The tables are files of `workloads/data/models`, each headed by its source and licence. Sizes
//! come from the architecture; a test here compares them with the tables.

use std::collections::BTreeMap;

use gradwire_protocol::units::Span;

use super::shape::{Architecture, set_forward};
use super::trained::{FORWARD_SHARE, Gradient, Model};

/// Returns the measured table of a model, if it has one.
pub(super) fn table(name: &str) -> Option<&'static str> {
    Some(match name {
        "vgg16" => include_str!("../../data/models/vgg16.csv"),
        "resnet50" => include_str!("../../data/models/resnet50.csv"),
        "resnet101" => include_str!("../../data/models/resnet101.csv"),
        "bert-base" => include_str!("../../data/models/bert-base.csv"),
        "bert-large" => include_str!("../../data/models/bert-large.csv"),
        "gpt2" => include_str!("../../data/models/gpt2.csv"),
        _ => return None,
    })
}

/// A gradient of a table.
struct MeasuredGradient<'a> {
    name: &'a str,
    #[cfg(test)]
    parameters: u64,
    gap: Span,
}

/// Returns the model of a shape, with the order and times of its table.
pub(super) fn model(shape: &Architecture, table: &str) -> Model {
    let mut model = shape.model();
    let gradients = std::mem::take(&mut model.gradients).into_iter();
    let mut by_name: BTreeMap<String, Gradient> =
        gradients.map(|one| (one.name.clone(), one)).collect();
    model.gradients = rows(table)
        .map(|row| {
            let one = by_name.remove(row.name);
            let one = one.expect("a table has the tensors of its architecture, which is tested");
            Gradient {
                backward: row.gap,
                ..one
            }
        })
        .collect();
    set_forward(&mut model, FORWARD_SHARE);
    model.times =
        "backward measured on a V100 (Espresso, EuroSys'23), forward 0.523 of that".to_owned();
    model
}

fn rows(table: &str) -> impl Iterator<Item = MeasuredGradient<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.skip(1).map(|line| {
        let columns: Vec<&str> = line.split(',').collect();
        let number = |column: usize| {
            let number = columns[column].parse::<u64>();
            number.expect("the tables of this package have whole numbers, which is tested")
        };
        MeasuredGradient {
            name: columns[0],
            #[cfg(test)]
            parameters: number(1),
            gap: Span::from_micros(number(2)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{NAMES, shape_of};
    use super::*;

    #[test]
    fn the_measured_tables_have_exactly_the_tensors_that_are_generated() {
        let mut tables = 0;
        for name in NAMES {
            let Some(table) = table(name) else { continue };
            tables += 1;
            let shape = shape_of(name).expect("it is one of the names");
            let mut generated: Vec<(&str, u64)> = (shape.tensors.iter())
                .map(|tensor| (tensor.name.as_str(), tensor.parameters))
                .collect();
            let mut measured: Vec<(&str, u64)> =
                rows(table).map(|row| (row.name, row.parameters)).collect();
            generated.sort_unstable();
            measured.sort_unstable();
            assert_eq!(measured, generated, "{name}");
        }
        assert_eq!(tables, 6);
    }

    #[test]
    fn every_table_names_its_source_and_licence() {
        for table in NAMES.into_iter().filter_map(table) {
            assert!(table.contains("\n# Source: zhuangwang93/Espresso, commit 20fc4721"));
            assert!(table.contains("Licence: Apache-2.0."));
            assert!(table.contains("\nname,numel,gap_us\n"));
        }
    }
}
