//! The model in the trace of one rank: gradients, and the computing between them.
//!
//! The reader takes a trace as one step; if a trace with named layers has several passes, it takes
//! the first. Layers have names where operations are called `LAYER_FWD`, `LAYER_BWD_IG` and
//! `LAYER_BWD_WG`, as `src/converter/text_converter.py` of mlcommons/chakra writes them. A trace
//! recorded by PyTorch names no layers: there each exchanged sum, such as a bucket of DDP, stands
//! for a layer. Its backward pass begins with the first operation that has `backward` in its name.
//!
//! Computing is that of the GPU if the trace has any, else that of the CPU.

use gradwire_protocol::units::Span;

use super::read;
use super::schema::{OperationKind, TraceOperation};
use crate::fault::TextError;
use crate::model::{FORWARD_SHARE, ForeignLayer, Model};

const LACKING: &str = "the trace needs all-reduces or reduce-scatters with `comm_size`, behind \
                       what the backward pass computes";
const PREFIX: &str = "COMP_NODE_";
const FORWARD: &str = "_FWD";
const INPUT: &str = "_BWD_IG";
const WEIGHT: &str = "_BWD_WG";

impl Model {
    /// Reads the model in the trace of a rank, see [`crate::chakra`], and calls it `name`.
    ///
    /// # Errors
    /// [`TextError`] names the faulty byte, line or operation.
    pub fn from_chakra(name: &str, trace: &[u8]) -> Result<Self, TextError> {
        let mut entries = read(0, trace)?;
        entries.sort_by_key(|entry| entry.id);
        let named = |entry: &TraceOperation| computes(entry) && layer(entry, FORWARD).is_some();
        let (rows, mut remarks) = match entries.iter().any(named) {
            true => Named::of(&entries).rows(),
            false => recorded(&entries),
        };
        remarks.insert(0, "parameters are bytes of exchanged sums / 4".to_owned());
        Self::of_rows(name, rows, remarks, LACKING)
    }
}

fn computes(entry: &TraceOperation) -> bool {
    entry.kind() == OperationKind::Compute
}

/// Returns the bytes of a sum over all ranks, if the operation makes one.
fn sum_bytes(entry: &TraceOperation) -> Option<u64> {
    let sums = matches!(entry.number("comm_type")?, 0 | 7 | 8);
    let bytes = entry.number("comm_size").filter(|bytes| *bytes > 0);
    bytes.filter(|_| sums && entry.kind() == OperationKind::Collective)
}

fn layer<'a>(entry: &'a TraceOperation, ending: &str) -> Option<&'a str> {
    let name = entry.name.strip_suffix(ending)?;
    Some(name.strip_prefix(PREFIX).unwrap_or(name))
}

/// The first pass of a trace whose operations name their layers.
#[derive(Default)]
struct Named {
    rows: Vec<ForeignLayer>,
    /// The operation of each row that makes its weight gradient.
    weights: Vec<Option<u64>>,
    /// Input gradients since the weight gradient before.
    open: Span,
    /// Collectives that do not sum weight gradients.
    others: usize,
    /// Whether the reader left another pass out.
    again: bool,
}

impl Named {
    fn of(entries: &[TraceOperation]) -> Self {
        let mut named = Self::default();
        for entry in entries {
            let forward = computes(entry).then(|| layer(entry, FORWARD)).flatten();
            let backward = named.weights.iter().any(Option::is_some);
            named.again = forward.is_some() && backward;
            if named.again {
                break;
            }
            named.add(entry, forward);
        }
        named
    }

    fn add(&mut self, entry: &TraceOperation, forward: Option<&str>) {
        let span = Span::from_micros(entry.duration);
        if let Some(layer) = forward {
            self.weights.push(None);
            self.rows.push(ForeignLayer {
                layer: layer.to_owned(),
                place: format!("operation {}", entry.id),
                forward: span,
                backward: Span::ZERO,
                bytes: 0,
            });
        } else if computes(entry) {
            self.compute(entry, span);
        } else if let Some(bytes) = sum_bytes(entry) {
            let of = |weight: &Option<u64>| weight.is_some_and(|id| entry.data.contains(&id));
            match self.weights.iter().position(of) {
                Some(at) => self.rows[at].bytes = self.rows[at].bytes.saturating_add(bytes),
                None => self.others += 1,
            }
        } else {
            self.others += usize::from(entry.number("comm_size").is_some_and(|bytes| bytes > 0));
        }
    }

    /// Adds a part of the backward pass: an input gradient counts for the next weight gradient.
    fn compute(&mut self, entry: &TraceOperation, span: Span) {
        self.open = self.open + span;
        let Some(layer) = layer(entry, WEIGHT) else {
            return;
        };
        let rows = self.rows.iter().zip(&self.weights);
        let made = rows
            .enumerate()
            .rev()
            .find(|(_, (row, weight))| row.layer == layer && weight.is_none());
        if let Some((at, _)) = made {
            self.weights[at] = Some(entry.id);
            self.rows[at].backward = std::mem::take(&mut self.open);
        }
    }

    fn rows(self) -> (Vec<ForeignLayer>, Vec<String>) {
        let mut remarks = Vec::new();
        if self.others > 0 {
            remarks.push(format!(
                "{} collectives that are not weight gradients are left out: every worker is \
                 data-parallel",
                self.others
            ));
        }
        if self.again {
            remarks.push("the passes behind the first are left out".to_owned());
        }
        (self.rows, remarks)
    }
}

/// A sum, and the computing before it.
struct Bucket {
    id: u64,
    bytes: u64,
    before: Span,
}

/// Makes the rows of a trace without named layers.
fn recorded(entries: &[TraceOperation]) -> (Vec<ForeignLayer>, Vec<String>) {
    let on_gpu = |entry: &TraceOperation| entry.flag("is_cpu_op") == Some(false);
    let gpu = entries.iter().any(|entry| computes(entry) && on_gpu(entry));
    let begin = entries.iter().position(|entry| {
        let name = entry.name.to_ascii_lowercase();
        name.contains("backward") || entry.name.ends_with(INPUT)
    });
    let (mut computed, mut forward, mut others) = (Span::ZERO, None, 0);
    let mut buckets = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if Some(at) == begin {
            forward = Some(computed);
        }
        if computes(entry) && on_gpu(entry) == gpu {
            computed = computed + Span::from_micros(entry.duration);
        }
        let known = begin.is_none_or(|begin| at >= begin);
        match sum_bytes(entry) {
            Some(bytes) if known => buckets.push(Bucket {
                id: entry.id,
                bytes,
                before: computed,
            }),
            _ => others += usize::from(entry.number("comm_type").is_some()),
        }
    }
    let last = buckets.last().map_or(Span::ZERO, |bucket| bucket.before);
    let mut remarks = vec![format!(
        "it names no layers: each of its {} exchanged sums stands for one, forward times shared \
         out as the backward ones",
        buckets.len()
    )];
    if forward.is_none() {
        remarks.push(format!(
            "no operation is called backward: the forward pass is taken as {FORWARD_SHARE:.3} of \
             the backward pass"
        ));
    }
    let behind = computed.beyond(last).as_micros();
    if behind > 0 {
        remarks.push(format!(
            "{behind} us of computing behind the last sum are left out"
        ));
    }
    if others > 0 {
        remarks.push(format!(
            "{others} collectives that are no such sums are left out"
        ));
    }
    let split = forward.unwrap_or_else(|| scaled(last, FORWARD_SHARE / (1.0 + FORWARD_SHARE)));
    (shared_out(&buckets, split), remarks)
}

/// Makes a row for each bucket, the last one first, and divides `forward` as their backward times.
fn shared_out(buckets: &[Bucket], forward: Span) -> Vec<ForeignLayer> {
    let last = buckets.last().map_or(Span::ZERO, |bucket| bucket.before);
    let backward = last.beyond(forward).as_picos().max(1) as f64;
    let mut before = forward;
    let rows = buckets.iter().enumerate().map(|(number, bucket)| {
        let own = bucket.before.beyond(before);
        before = before + own;
        ForeignLayer {
            layer: format!("bucket {number}"),
            place: format!("operation {}", bucket.id),
            forward: scaled(forward, own.as_picos() as f64 / backward),
            backward: own,
            bytes: bucket.bytes,
        }
    });
    let mut rows: Vec<ForeignLayer> = rows.collect();
    rows.reverse();
    rows
}

fn scaled(span: Span, by: f64) -> Span {
    Span::from_picos((span.as_picos() as f64 * by).round() as u64)
}
