//! A user's model: a table of comma-separated values.
//!
//! ```text
//! layer,parameters,forward_ns,backward_ns
//! embedding,1000000,20000,60000
//! output,500000,40000,80000
//! ```
//!
//! The first line names the columns, in any order. A row is a tensor, and rows are in the order of
//! the forward pass; the backward pass makes their gradients last row first, each `backward_ns`
//! after the one before. With a column `tensor`, consecutive rows of one layer are its tensors, and
//! their forward times add up; without it a row is a layer. `parameters` may be 0 where a layer
//! only computes. The reader skips blank lines and lines that begin with `#`.

use std::collections::BTreeMap;

use gradwire_protocol::units::Span;

use crate::fault::TextError;

use super::trained::{Gradient, Model, ModelLayer};

/// Maximum number of layers of a table.
pub const LAYERS_MAX: usize = 4_096;
/// Most rows.
const ROWS_MAX: usize = 65_536;
/// Maximum number of parameters of a row, above those of any model.
const PARAMETERS_MAX: u64 = 1_000_000_000_000;
/// Longest time of a row in nanoseconds: 100 s.
const NANOS_MAX: u64 = 100_000_000_000;
const COLUMNS: &str = "layer, parameters, forward_ns, backward_ns and, if wanted, tensor";

impl Model {
    /// Reads a table as the model `name`.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line, its text and the allowed values.
    pub fn from_csv(name: &str, text: &str) -> Result<Self, TextError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (first, header) = lines.next().ok_or_else(no_layers)?;
        let columns = Columns::parse(first, header)?;
        let mut rows = Rows::default();
        for (line, text) in lines {
            rows.add(line, columns.row(line, text)?)?;
        }
        rows.model(name)
    }
}

/// The column of each value.
struct Columns {
    count: usize,
    layer: usize,
    tensor: Option<usize>,
    parameters: usize,
    forward: usize,
    backward: usize,
}

/// A line of a table.
struct TableRow<'a> {
    layer: &'a str,
    tensor: Option<&'a str>,
    parameters: u64,
    forward: Span,
    backward: Span,
}

impl Columns {
    fn parse(line: usize, header: &str) -> Result<Self, TextError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let known = ["layer", "parameters", "forward_ns", "backward_ns", "tensor"];
        for (at, &name) in names.iter().enumerate() {
            let wrong = |what| {
                let rule = format!("column `{name}` {what}; columns are {COLUMNS}");
                TextError::line(line, rule)
            };
            if !known.contains(&name) {
                return Err(wrong("is not known"));
            }
            if names[..at].contains(&name) {
                return Err(wrong("is there twice"));
            }
        }
        let place = |column| names.iter().position(|name| *name == column);
        let needed = |column| {
            place(column).ok_or_else(|| {
                let rule = format!("no column `{column}`; columns are {COLUMNS}");
                TextError::line(line, rule)
            })
        };
        Ok(Self {
            count: names.len(),
            layer: needed("layer")?,
            tensor: place("tensor"),
            parameters: needed("parameters")?,
            forward: needed("forward_ns")?,
            backward: needed("backward_ns")?,
        })
    }

    fn row<'a>(&self, line: usize, text: &'a str) -> Result<TableRow<'a>, TextError> {
        let values: Vec<&str> = text.split(',').map(str::trim).collect();
        if values.len() != self.count {
            let (found, needed) = (values.len(), self.count);
            let rule = format!("{found} values; the first line names {needed} columns");
            return Err(TextError::line(line, rule));
        }
        let cell = |column, at: usize| TableCell {
            line,
            column,
            given: values[at],
        };
        let nanos = |column, at| {
            let allowed = "whole nanoseconds from 0 to 100000000000 (100 s)";
            cell(column, at)
                .number(NANOS_MAX, allowed)
                .map(Span::from_nanos)
        };
        let tensor = self.tensor.map(|at| cell("tensor", at).name());
        let parameters = cell("parameters", self.parameters);
        Ok(TableRow {
            layer: cell("layer", self.layer).name()?,
            tensor: tensor.transpose()?,
            parameters: parameters.number(PARAMETERS_MAX, "whole numbers from 0 to 10^12")?,
            forward: nanos("forward_ns", self.forward)?,
            backward: nanos("backward_ns", self.backward)?,
        })
    }
}

/// A value and its place.
struct TableCell<'a> {
    line: usize,
    column: &'static str,
    given: &'a str,
}

impl<'a> TableCell<'a> {
    fn name(&self) -> Result<&'a str, TextError> {
        let odd = |letter: char| letter.is_control() || letter == '"';
        if self.given.is_empty() || self.given.contains(odd) {
            return Err(self.wrong("names without quotes, commas and control characters"));
        }
        Ok(self.given)
    }

    fn number(&self, most: u64, allowed: &str) -> Result<u64, TextError> {
        let digits = self.given.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| self.given.parse().ok()).flatten();
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| self.wrong(allowed))
    }

    fn wrong(&self, allowed: &str) -> TextError {
        let Self { column, given, .. } = self;
        TextError::line(
            self.line,
            format!("{column} `{given}`: allowed are {allowed}"),
        )
    }
}

/// The rows so far.
#[derive(Default)]
struct Rows {
    layers: Vec<ModelLayer>,
    gradients: Vec<Gradient>,
    /// The first line of each layer.
    first: BTreeMap<String, usize>,
}

impl Rows {
    fn add(&mut self, line: usize, row: TableRow<'_>) -> Result<(), TextError> {
        let too_many =
            |most, what| TextError::line(line, format!("more than {most} {what}; join some"));
        if self.gradients.len() == ROWS_MAX {
            return Err(too_many(ROWS_MAX, "rows"));
        }
        let again = self
            .layers
            .last()
            .is_some_and(|last| last.name == row.layer);
        if !again || row.tensor.is_none() {
            self.add_layer(line, &row)?;
        }
        if self.layers.len() > LAYERS_MAX {
            return Err(too_many(LAYERS_MAX, "layers"));
        }
        let last = self.layers.last_mut().expect("the row has its layer");
        last.forward = last.forward + row.forward;
        self.gradients.push(Gradient {
            name: match row.tensor {
                Some(tensor) => format!("{}.{tensor}", row.layer),
                None => row.layer.to_owned(),
            },
            layer: (self.layers.len() - 1) as u16,
            parameters: row.parameters,
            backward: row.backward,
        });
        Ok(())
    }

    fn add_layer(&mut self, line: usize, row: &TableRow<'_>) -> Result<(), TextError> {
        let name = row.layer.to_owned();
        if let Some(&first) = self.first.get(&name) {
            let rule = match row.tensor {
                Some(_) => "the tensors of a layer stand behind each other",
                None => "name each layer once, or its tensors in a column `tensor`",
            };
            let rule = format!("layer `{name}` is in line {first} already; {rule}");
            return Err(TextError::line(line, rule));
        }
        self.first.insert(name.clone(), line);
        self.layers.push(ModelLayer {
            name,
            forward: Span::ZERO,
            values: None,
        });
        Ok(())
    }

    fn model(mut self, name: &str) -> Result<Model, TextError> {
        if self.layers.is_empty() {
            return Err(no_layers());
        }
        if self.gradients.iter().all(|one| one.parameters == 0) {
            let text = "no layer has parameters; at least one row needs 1 or more";
            return Err(TextError::Whole(text.to_owned()));
        }
        self.gradients.reverse();
        Ok(Model {
            name: name.to_owned(),
            times: format!("as {name} says"),
            layers: self.layers,
            gradients: self.gradients,
            samples: None,
            remarks: Vec::new(),
        })
    }
}

/// The fault of a table without a row.
fn no_layers() -> TextError {
    let columns = "layer,parameters,forward_ns,backward_ns";
    TextError::Whole(format!(
        "no layers; behind a line `{columns}` each has its line"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "layer,parameters,forward_ns,backward_ns";

    fn refusal(rows: &str) -> String {
        let table = Model::from_csv("m.csv", &format!("{HEADER}\n{rows}"));
        table.expect_err("the table is wrong").to_string()
    }

    #[test]
    fn rows_are_layers_forward_and_gradients_backward() {
        let text = "# mine\n\nbackward_ns,layer,forward_ns,parameters\r\n30,a,10,5\r\n40,b,20,7\n";
        let model = Model::from_csv("m.csv", text).expect("the table is right");
        assert_eq!((model.parameters(), model.bytes().get()), (12, 48));
        assert_eq!(model.forward(), Span::from_nanos(30));
        let gradients = model.gradients.iter();
        let gradients: Vec<(&str, u16, u64)> = gradients
            .map(|one| (&one.name[..], one.layer, one.backward.as_nanos()))
            .collect();
        assert_eq!(gradients, [("b", 1, 40), ("a", 0, 30)]);
        assert_eq!(model.times, "as m.csv says");
    }

    #[test]
    fn tensors_of_one_layer_share_its_forward_pass() {
        let text = format!("{HEADER},tensor\na,5,10,30,weight\na,1,2,3,bias\nb,0,7,8,none\n");
        let model = Model::from_csv("m.csv", &text).expect("the table is right");
        assert_eq!(model.layers.len(), 2);
        assert_eq!(model.layers[0].forward, Span::from_nanos(12));
        let names = model.gradients.iter().map(|one| (&one.name[..], one.layer));
        let names: Vec<(&str, u16)> = names.collect();
        assert_eq!(names, [("b.none", 1), ("a.bias", 0), ("a.weight", 0)]);
    }

    #[test]
    fn each_mistake_has_one_line_that_says_what_is_allowed() {
        let of = |text| {
            Model::from_csv("m.csv", text)
                .expect_err("it is wrong")
                .to_string()
        };
        assert!(of("").starts_with("no layers; behind a line `layer,parameters,"));
        assert!(of(HEADER).starts_with("no layers"));
        assert!(of("layer,size").starts_with("line 1: column `size` is not known; columns are"));
        assert!(of("layer,layer").contains("column `layer` is there twice"));
        let missing = "line 1: no column `forward_ns`; columns are layer, parameters";
        assert!(of("layer,parameters").starts_with(missing));
        assert_eq!(
            refusal("a,1,2"),
            "line 2: 3 values; the first line names 4 columns"
        );
        assert_eq!(
            refusal("a,1,2,3\nb,-1,2,3"),
            "line 3: parameters `-1`: allowed are whole numbers from 0 to 10^12"
        );
        assert!(refusal("a,1,2.5,3").contains("forward_ns `2.5`: allowed are whole nanoseconds"));
        assert!(refusal("a,1,2,100000000001").contains("backward_ns `100000000001`: allowed"));
        assert!(refusal("a,1,,3").contains("forward_ns ``: allowed"));
        assert!(refusal("a,99999999999999999999,2,3").contains("parameters `9999"));
        assert!(refusal("\"a\",1,2,3").contains("names without quotes"));
        assert_eq!(
            refusal("a,1,2,3\na,1,2,3"),
            "line 3: layer `a` is in line 2 already; name each layer once, or its tensors in a \
             column `tensor`"
        );
        assert!(refusal("a,0,2,3").starts_with("no layer has parameters"));
        let apart = format!("{HEADER},tensor\na,1,2,3,w\nb,1,2,3,w\na,1,2,3,v");
        assert!(of(&apart).contains("line 4: layer `a` is in line 2 already; the tensors"));
        let many: String = (0..=LAYERS_MAX)
            .map(|at| format!("l{at},1,1,1\n"))
            .collect();
        assert_eq!(
            refusal(&many),
            "line 4098: more than 4096 layers; join some"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_tables_never_panic(
            cells in proptest::collection::vec("layer|[0-9]{0,22}|\\PC{0,3}|\n|,", 0..60),
        ) {
            let text = format!("{HEADER}\n{}", cells.join(","));
            if let Ok(model) = Model::from_csv("m.csv", &text) {
                prop_assert!(model.parameters() > 0);
            }
        }
    }
}
