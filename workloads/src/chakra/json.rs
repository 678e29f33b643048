//! Traces as JSON, in the two forms of Chakra's own tools: one object whose `workload_graph` lists
//! the operations (`src/feeder/json_node.cpp` of mlcommons/chakra), and a sequence of messages as
//! protocol buffers write them in JSON (`src/jsonizer/jsonizer.py` there).

use serde::{Deserialize, Deserializer};

use super::schema::{AttributeMessage, OperationKind, TraceOperation};
use crate::fault::TextError;

/// The fault of a trace of PyTorch alone: it has no durations.
const HOST_TRACE: &str = "this is a host trace of PyTorch, without durations; link it with its \
                          device trace (chakra_trace_link) and convert that (chakra_converter)";
/// Returns the text of a trace if it is JSON and not a protocol buffer.
///
/// In a protocol buffer an opening brace would be a length of 123 bytes. But a trace with metadata
/// is not text up to its end with a quotation mark after the brace.
pub(super) fn text(trace: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(trace).ok()?;
    let inside = text.trim_start().strip_prefix('{')?.trim_start();
    let begins = inside.is_empty() || inside.starts_with(['"', '}']);
    (begins && !text.contains('\0')).then_some(text)
}

/// Reads the trace of a rank.
pub(super) fn read(rank: u32, text: &str) -> Result<Vec<TraceOperation>, TextError> {
    let wrong = |what: String| TextError::Whole(format!("rank {rank}: {what}"));
    if text.contains("\"workload_graph\"") {
        let graph: Result<Graph, _> = serde_json::from_str(text);
        let graph = graph.map_err(|error| wrong(error.to_string()))?;
        let operations = graph.workload_graph.into_iter();
        return Ok(operations.map(TraceOperation::from).collect());
    }
    if text.contains("\"nodes\"") {
        return Err(wrong(HOST_TRACE.to_owned()));
    }
    let messages = serde_json::Deserializer::from_str(text).into_iter();
    // The first message is the metadata.
    let entries: Result<_, serde_json::Error> = messages.skip(1).collect();
    entries.map_err(|error| wrong(error.to_string()))
}

#[derive(Deserialize)]
struct Graph {
    workload_graph: Vec<Operation>,
}

/// An operation of a graph; its attributes are siblings of its name.
#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "Id")]
    id: u64,
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "NodeType")]
    kind: i32,
    #[serde(default)]
    runtime: u64,
    #[serde(default)]
    data_deps: Vec<u64>,
    is_cpu_op: Option<bool>,
    comm_type: Option<u64>,
    comm_size: Option<u64>,
    comm_src: Option<u64>,
    comm_dst: Option<u64>,
    comm_tag: Option<u64>,
}

/// An integer, written as a number or as a string.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(try_from = "Written")]
struct Whole(i64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(i64),
    Text(String),
}

impl TryFrom<Written> for Whole {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => match text.parse() {
                Ok(number) => Ok(Self(number)),
                Err(_) => Err(format!("`{text}` is not a whole number")),
            },
        }
    }
}

impl Whole {
    /// Returns the number; a negative id or duration counts as 0.
    fn count(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

/// The kind that a message names.
pub(super) fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let named = String::deserialize(from)?.parse();
    Ok(named.unwrap_or(OperationKind::Invalid).into())
}

/// A count of a message; JSON writes 64-bit integers as strings.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Whole::deserialize(from).map(Whole::count)
}

/// Counts of a message.
pub(super) fn counts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let counts = Vec::<Whole>::deserialize(from)?.into_iter();
    Ok(counts.map(Whole::count).collect())
}

/// A count of a message, if it has one.
pub(super) fn some_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole>::deserialize(from)?.map(Whole::count))
}

/// An integer of a message, if it has one.
pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    Ok(Option::<Whole>::deserialize(from)?.map(|whole| whole.0))
}

impl From<Operation> for TraceOperation {
    fn from(from: Operation) -> Self {
        let number = |(name, value): (&str, Option<u64>)| AttributeMessage {
            name: name.to_owned(),
            uint64: value,
            ..AttributeMessage::default()
        };
        let numbers = [
            ("comm_type", from.comm_type),
            ("comm_size", from.comm_size),
            ("comm_src", from.comm_src),
            ("comm_dst", from.comm_dst),
            ("comm_tag", from.comm_tag),
        ];
        let is_cpu_op = AttributeMessage {
            name: "is_cpu_op".to_owned(),
            flag: from.is_cpu_op,
            ..AttributeMessage::default()
        };
        Self {
            id: from.id,
            name: from.name,
            kind: from.kind,
            data: from.data_deps,
            duration: from.runtime,
            attributes: numbers.map(number).into_iter().chain([is_cpu_op]).collect(),
            ..Self::default()
        }
    }
}
