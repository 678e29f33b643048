//! Traces as JSON, in the two forms of Chakra's own tools: one object whose `workload_graph` lists
//! the operations (`src/feeder/json_node.cpp` of mlcommons/chakra), and a sequence of messages as
//! protocol buffers write them in JSON (`src/jsonizer/jsonizer.py` there).

use serde::Deserialize;

use super::error::ChakraError;
use super::schema::{AttributeMessage, OperationKind, TraceOperation};

/// The fault of a trace of PyTorch alone: it has no durations.
const HOST_TRACE: &str = "this is a host trace of PyTorch, without durations; link it with its \
                          device trace (chakra_trace_link) and convert that (chakra_converter)";
const KINDS: [&str; 8] = [
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
];

/// Returns the text of a trace if it is JSON and no protocol buffer.
///
/// In a protocol buffer an opening brace would be a length of 123 bytes. But a trace with metadata
/// is not text up to its end with a quotation mark behind the brace.
pub(super) fn text(trace: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(trace).ok()?;
    let inside = text.trim_start().strip_prefix('{')?.trim_start();
    let begins = inside.is_empty() || inside.starts_with(['"', '}']);
    (begins && !text.contains('\0')).then_some(text)
}

/// Reads the trace of a rank.
pub(super) fn read(rank: u32, text: &str) -> Result<Vec<TraceOperation>, ChakraError> {
    let wrong = |error: serde_json::Error| ChakraError::Json {
        rank,
        what: error.to_string(),
    };
    if text.contains("\"workload_graph\"") {
        let graph: Graph = serde_json::from_str(text).map_err(wrong)?;
        return Ok(graph
            .workload_graph
            .into_iter()
            .map(TraceOperation::from)
            .collect());
    }
    if text.contains("\"nodes\"") {
        let what = HOST_TRACE.to_owned();
        return Err(ChakraError::Json { rank, what });
    }
    let messages = serde_json::Deserializer::from_str(text).into_iter::<Message>();
    // The first message is the metadata.
    let entries = messages
        .skip(1)
        .map(|message| Ok(TraceOperation::from(message?)));
    let entries: Result<Vec<TraceOperation>, serde_json::Error> = entries.collect();
    entries.map_err(wrong)
}

#[derive(Deserialize)]
struct Graph {
    workload_graph: Vec<Operation>,
}

/// An operation of a graph; its attributes stand beside its name.
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

/// A message; JSON writes its 64-bit integers as strings.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Message {
    id: Whole,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    data_deps: Vec<Whole>,
    duration_micros: Whole,
    inputs: Values,
    attr: Vec<Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Values {
    values: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attribute {
    name: String,
    int32_val: Option<i32>,
    int64_val: Option<Whole>,
    uint32_val: Option<u32>,
    uint64_val: Option<Whole>,
    bool_val: Option<bool>,
    string_val: Option<String>,
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
                Err(_) => Err(format!("`{text}` is no whole number")),
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

impl From<Operation> for TraceOperation {
    fn from(from: Operation) -> Self {
        let numbers = [
            ("comm_type", from.comm_type),
            ("comm_size", from.comm_size),
            ("comm_src", from.comm_src),
            ("comm_dst", from.comm_dst),
            ("comm_tag", from.comm_tag),
        ];
        let mut attributes: Vec<AttributeMessage> = numbers
            .into_iter()
            .filter(|(_, value)| value.is_some())
            .map(|(name, value)| AttributeMessage {
                name: name.to_owned(),
                uint64: value,
                ..AttributeMessage::default()
            })
            .collect();
        attributes.push(AttributeMessage {
            name: "is_cpu_op".to_owned(),
            flag: from.is_cpu_op,
            ..AttributeMessage::default()
        });
        Self {
            id: from.id,
            name: from.name,
            kind: OperationKind::of(from.kind),
            data: from.data_deps,
            duration: from.runtime,
            inputs: String::new(),
            attributes,
        }
    }
}

impl From<Message> for TraceOperation {
    fn from(from: Message) -> Self {
        let number = KINDS.iter().position(|kind| *kind == from.kind);
        Self {
            id: from.id.count(),
            name: from.name,
            kind: OperationKind::of(number.unwrap_or(0) as i32),
            data: from.data_deps.into_iter().map(Whole::count).collect(),
            duration: from.duration_micros.count(),
            inputs: from.inputs.values,
            attributes: from.attr.into_iter().map(AttributeMessage::from).collect(),
        }
    }
}

impl From<Attribute> for AttributeMessage {
    fn from(from: Attribute) -> Self {
        Self {
            name: from.name,
            int32: from.int32_val,
            int64: from.int64_val.map(|whole| whole.0),
            uint32: from.uint32_val,
            uint64: from.uint64_val.map(Whole::count),
            flag: from.bool_val,
            flags: None,
            text: from.string_val,
        }
    }
}
