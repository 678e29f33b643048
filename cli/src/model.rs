//! `gradwire model`: the models that a training step can be simulated with.
//!
//! A model is one that the simulator knows by name, a user's table (`NAME.csv`), or a file of
//! another tool: SimAI and ASTRA-sim (`NAME.txt`), Chakra (`NAME.et`, `NAME.json`).

pub mod options;
mod plan;
mod record;

use std::ops::Range;

use gradwire_lab::files;
use gradwire_netsim::results::statistics::micros;
use gradwire_protocol::units::Span;
use gradwire_report::numbers::{bytes, count};
use gradwire_report::printing::OutputForm;
use gradwire_workloads::model::{ELEMENT_BYTES, Gradient, Model, NAMES};
use serde_json::{Value, json};

use crate::exit::CommandError;
use options::{ModelCommand, ModelList, ModelShow};

/// Gradients that a table has at each end before those between are left out.
const ENDS: usize = 8;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] names the model or the line of a table that is wrong.
pub fn run(command: &ModelCommand) -> Result<(), CommandError> {
    match command {
        ModelCommand::List(options) => list(options),
        ModelCommand::Show(options) => show(options),
        ModelCommand::Record(options) => record::record(options),
        ModelCommand::Plan(options) => plan::plan(options),
    }
}

fn list(options: &ModelList) -> Result<(), CommandError> {
    let models = NAMES.map(|name| Model::named(name).expect("it is one of the names"));
    if options.json {
        let objects = models.iter().map(totals).collect();
        println!("{}", Value::Array(objects));
        return Ok(());
    }
    println!(
        "{:<12}{:>14}{:>9}{:>8}{:>11}{:>12}{:>13}  times",
        "model", "parameters", "tensors", "layers", "gradients", "forward ms", "backward ms"
    );
    for model in &models {
        println!(
            "{:<12}{:>14}{:>9}{:>8}{:>11}{:>12.1}{:>13.1}  {}",
            model.name,
            count(model.parameters()),
            model.gradients.len(),
            model.layers.len(),
            bytes(model.bytes().get()),
            millis(model.forward()),
            millis(model.backward()),
            model.times,
        );
    }
    Ok(())
}

fn show(options: &ModelShow) -> Result<(), CommandError> {
    let model = files::model(&options.model)?;
    let left_out = match options.all {
        true => 0..0,
        false => shortened(model.gradients.len()),
    };
    OutputForm::from(options.json).print(|| table(&model, left_out), || object(&model));
    Ok(())
}

fn totals(model: &Model) -> Value {
    json!({
        "name": model.name,
        "times": model.times,
        "parameters": model.parameters(),
        "bytes": model.bytes().get(),
        "tensors": model.gradients.len(),
        "forward_us": micros(model.forward()),
        "backward_us": micros(model.backward()),
    })
}

fn object(model: &Model) -> Value {
    let layers = model.layers.iter();
    let layers =
        layers.map(|layer| json!({"name": layer.name, "forward_us": micros(layer.forward)}));
    let gradients = with_ready(model).map(|(one, ready)| {
        json!({
            "name": one.name,
            "layer": one.layer,
            "parameters": one.parameters,
            "bytes": one.parameters * ELEMENT_BYTES,
            "backward_us": micros(one.backward),
            "ready_us": micros(ready),
        })
    });
    let mut object = totals(model);
    object["remarks"] = json!(model.remarks);
    object["layers"] = layers.collect();
    object["gradients"] = gradients.collect();
    object
}

/// Every gradient, and how long after the start of the backward pass it is ready.
fn with_ready(model: &Model) -> impl Iterator<Item = (&Gradient, Span)> {
    model.gradients.iter().scan(Span::ZERO, |ready, one| {
        *ready = *ready + one.backward;
        Some((one, *ready))
    })
}

/// The table of a model without the rows of `left_out`, but with their sum.
fn table(model: &Model, left_out: Range<usize>) -> String {
    let rows = rows(model);
    let between = format!("... {} more, see --all", left_out.len());
    let widest = model.gradients.iter().map(|one| one.name.chars().count());
    let width = widest.chain([between.len()]).max().unwrap_or(0);
    let mut text = headline(model);
    text += &format!(
        "\n{:<width$}{:>14}{:>11}{:>14}{:>12}{:>12}\n",
        "gradient", "parameters", "bytes", "backward us", "ready ms", "forward us"
    );
    for (at, (one, row)) in model.gradients.iter().zip(&rows).enumerate() {
        if at == left_out.start && !left_out.is_empty() {
            let sums = sums(&model.gradients[left_out.clone()]);
            text += &format!("{between:<width$}{sums}\n");
        }
        if !left_out.contains(&at) {
            text += &format!("{:<width$}{row}\n", one.name);
        }
    }
    text + &format!(
        "{:<width$}{}{:>12.3}{:>12.1}\n",
        "total",
        sums(&model.gradients),
        millis(model.backward()),
        micros(model.forward()),
    )
}

fn headline(model: &Model) -> String {
    let remarks = model.remarks.iter();
    let remarks: String = remarks.map(|remark| format!("# {remark}\n")).collect();
    format!(
        "# {}: {} gradients of {} layers, in the order of the backward pass; 4 bytes a parameter\n\
         # times: {}\n{remarks}",
        model.name,
        model.gradients.len(),
        model.layers.len(),
        model.times,
    )
}

/// The numbers of each gradient; the forward time of a layer stands beside its last one.
fn rows(model: &Model) -> Vec<String> {
    let mut last = vec![0; model.layers.len()];
    for (at, one) in model.gradients.iter().enumerate() {
        last[usize::from(one.layer)] = at;
    }
    let rows = with_ready(model).enumerate().map(|(at, (one, ready))| {
        let layer = usize::from(one.layer);
        let forward = match last[layer] == at {
            true => format!("{:>12.1}", micros(model.layers[layer].forward)),
            false => String::new(),
        };
        let own = sums(std::slice::from_ref(one));
        format!("{own}{:>12.3}{forward}", millis(ready))
    });
    rows.collect()
}

/// The rows that are left out of a long table; empty where that would save less than one.
fn shortened(rows: usize) -> Range<usize> {
    match rows > 2 * ENDS + 1 {
        true => ENDS..rows - ENDS,
        false => 0..0,
    }
}

/// Parameters, bytes and backward time of gradients together.
fn sums(gradients: &[Gradient]) -> String {
    let parameters: u64 = gradients.iter().map(|one| one.parameters).sum();
    let spans = gradients.iter().map(|one| one.backward);
    let time = spans.fold(Span::ZERO, |all, one| all + one);
    format!(
        "{:>14}{:>11}{:>14.1}",
        count(parameters),
        bytes(parameters * ELEMENT_BYTES),
        micros(time),
    )
}

fn millis(span: Span) -> f64 {
    micros(span) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shortened_only_where_that_saves_lines() {
        assert!(shortened(17).is_empty());
        assert_eq!(shortened(18), 8..10);
    }

    #[test]
    fn tables_have_ends_middle_and_total() {
        let model = Model::named("vgg16").expect("it is one of the names");
        let short = table(&model, shortened(32));
        let rows: Vec<&str> = short.lines().skip(4).collect();
        assert_eq!(rows.len(), 8 + 1 + 8 + 1);
        assert!(rows[5].starts_with("classifier.0.weight") && rows[5].contains("102,760,448"));
        assert!(rows[8].starts_with("... 16 more, see --all"), "{short}");
        assert!(
            rows[17].starts_with("total") && rows[17].contains("138,357,544"),
            "{short}"
        );
        assert_eq!(table(&model, 0..0).lines().count(), 4 + 32 + 1);
    }

    #[test]
    fn last_gradient_ends_the_backward_pass() {
        let object = object(&Model::named("vgg16").expect("it is one of the names"));
        assert_eq!(object["gradients"][31]["ready_us"], object["backward_us"]);
        assert_eq!(object["gradients"][31]["name"], "features.0.weight");
        assert_eq!(object["layers"].as_array().map(Vec::len), Some(16));
    }
}
