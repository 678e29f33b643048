//! The result of a plan: in words, for programs, and as keys of a job file.

use std::path::Path;

use gradwire_protocol::units::ByteCount;
use gradwire_tuning::selective::TensorPlan;
use serde::Serialize;

use super::CodecQuestion;
use super::measured::ELEMENT_BYTES;
use crate::error::LabError;
use crate::job_file::document;

/// The result as JSON. Times are milliseconds of one step's gradients, one tensor after the other.
#[derive(Clone, Debug, Serialize)]
pub struct CodecReport {
    model: String,
    servers: u32,
    bandwidth_gbps: f64,
    codecs: Vec<CodecRow>,
    /// The codec with the least time; `None` if no tensor gains.
    best: Option<String>,
    #[serde(skip)]
    share: String,
}

/// The plan of one codec.
#[derive(Clone, Debug, Serialize)]
pub struct CodecRow {
    codec: String,
    plain_ms: f64,
    /// With every tensor encoded.
    all_encoded_ms: f64,
    /// As planned.
    planned_ms: f64,
    encoded: usize,
    /// The least tensor that is encoded.
    min_elements: Option<u64>,
    tensors: Vec<PlanRow>,
}

/// The plan of one tensor.
#[derive(Clone, Debug, Serialize)]
pub struct PlanRow {
    name: String,
    elements: u64,
    is_encoded: bool,
    parts: u32,
    plain_ms: f64,
    encoded_ms: f64,
}

impl PlanRow {
    /// A row of the table.
    pub fn new(name: &str, plan: &TensorPlan) -> Self {
        Self {
            name: name.to_owned(),
            elements: plan.elements,
            is_encoded: plan.is_encoded,
            parts: plan.parts,
            plain_ms: plan.plain_ms,
            encoded_ms: plan.encoded_ms,
        }
    }
}

impl CodecRow {
    /// The sums of a codec's plan.
    pub fn new(codec: &str, tensors: Vec<PlanRow>, min_elements: Option<u64>) -> Self {
        let sum = |of: fn(&PlanRow) -> f64| tensors.iter().map(of).sum();
        Self {
            codec: codec.to_owned(),
            plain_ms: sum(|row| row.plain_ms),
            all_encoded_ms: sum(|row| row.encoded_ms),
            planned_ms: sum(|row| row.plain_ms.min(row.encoded_ms)),
            encoded: tensors.iter().filter(|row| row.is_encoded).count(),
            min_elements,
            tensors,
        }
    }
}

impl CodecReport {
    /// The report of at least one codec.
    pub fn new(question: &CodecQuestion, codecs: Vec<CodecRow>) -> Self {
        let gaining = codecs.iter().filter(|row| row.encoded > 0);
        let best = gaining.min_by(|a, b| a.planned_ms.total_cmp(&b.planned_ms));
        Self {
            model: question.model.clone().unwrap_or_default(),
            servers: question.servers,
            bandwidth_gbps: question.bandwidth.as_bits_per_second() as f64 / 1e9,
            best: best.map(|row| row.codec.clone()),
            codecs,
            share: question.share.to_string(),
        }
    }

    fn best(&self) -> Option<&CodecRow> {
        let named = |row: &&CodecRow| Some(&row.codec) == self.best.as_ref();
        self.codecs.iter().find(named)
    }

    /// Returns the report in words.
    pub fn text(&self) -> String {
        let (model, servers, gbps) = (&self.model, self.servers, self.bandwidth_gbps);
        let mut text = format!(
            "# {model} among {servers} hosts at {gbps} Gb/s: ms to synchronise all tensors, one by \
             one\n\n{:>12}{:>12}{:>12}{:>12}{:>10}\n",
            "codec", "plain", "all encoded", "planned", "encoded"
        );
        for row in &self.codecs {
            text += &format!(
                "{:>12}{:>12.2}{:>12.2}{:>12.2}{:>6} of {}\n",
                row.codec,
                row.plain_ms,
                row.all_encoded_ms,
                row.planned_ms,
                row.encoded,
                row.tensors.len()
            );
        }
        let Some(best) = self.best() else {
            return text + &self.why_none();
        };
        text += &format!(
            "\n# {}: tensor, elements, encoded (y or n), parts\n",
            best.codec
        );
        for row in &best.tensors {
            let sign = if row.is_encoded { 'y' } else { 'n' };
            text += &format!("{},{},{sign},{}\n", row.name, row.elements, row.parts);
        }
        match self.keys() {
            Some((codec, least)) => {
                let share = &self.share;
                let share = match codec == "topk" {
                    true => format!("codec_share = \"{share}\"\n"),
                    false => String::new(),
                };
                text + &format!(
                    "\n[collectives]\ncodec = \"{codec}\"\n{share}codec_min = \"{least}\"\n"
                )
            }
            None => text,
        }
    }

    fn why_none(&self) -> String {
        let least = |a: &&CodecRow, b: &&CodecRow| a.all_encoded_ms.total_cmp(&b.all_encoded_ms);
        let closest = self.codecs.iter().min_by(least);
        closest.map_or_else(String::new, |row| {
            format!(
                "\nnone: no tensor gains. The wire takes {:.2} ms; encoding and decoding and the \
                 shorter messages of {} take {:.2} ms.\n\n[collectives]\ncodec = \"none\"\n",
                row.plain_ms, row.codec, row.all_encoded_ms
            )
        })
    }

    /// The codec and the least tensor, as keys of a job; `None` for published costs, which are
    /// those of another program's codec.
    fn keys(&self) -> Option<(&str, ByteCount)> {
        let best = self.best().filter(|row| row.codec != "published")?;
        let least = best.min_elements.unwrap_or(0) * ELEMENT_BYTES as u64;
        Some((&best.codec, ByteCount::new(least)))
    }

    /// Puts the result into a job file, which may be new.
    ///
    /// # Errors
    /// [`LabError`] when the file is no job or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        let mut document = document::read(path)?;
        let collectives = document::table(&mut document, "collectives");
        match self.keys() {
            Some((codec, least)) => {
                document::put(collectives, "codec", codec.into());
                document::put(collectives, "codec_min", least.to_string().into());
                if codec == "topk" {
                    document::put(collectives, "codec_share", self.share.as_str().into());
                }
            }
            None => document::put(collectives, "codec", "none".into()),
        }
        document::save(path, &document)
    }
}
