//! The messages of a trace: the fields of `et_def.proto` that the simulator uses, and their names
//! in JSON (`json`).

use prost::{Enumeration, Message};
use serde::Deserialize;
use strum::EnumString;

use super::json;
use crate::fault::TextError;

/// An operation of a trace.
#[derive(Clone, PartialEq, Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TraceOperation {
    #[prost(uint64, tag = "1")]
    #[serde(deserialize_with = "json::count")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(enumeration = "OperationKind", tag = "3")]
    #[serde(rename = "type", deserialize_with = "json::kind")]
    pub(super) kind: i32,
    /// Ids of the operations whose results this one needs.
    #[prost(uint64, repeated, tag = "5")]
    #[serde(rename = "dataDeps", deserialize_with = "json::counts")]
    pub(super) data: Vec<u64>,
    /// Microseconds.
    #[prost(uint64, tag = "7")]
    #[serde(rename = "durationMicros", deserialize_with = "json::count")]
    pub(super) duration: u64,
    /// Its arguments; a list of process groups in the operation that announces them.
    #[prost(message, optional, tag = "8")]
    pub(super) inputs: Option<ValuesMessage>,
    #[prost(message, repeated, tag = "10")]
    #[serde(rename = "attr")]
    pub(super) attributes: Vec<AttributeMessage>,
}

/// The kind of an operation; one that is not known counts as not valid.
#[derive(Clone, Copy, Debug, EnumString, Enumeration, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(i32)]
pub(super) enum OperationKind {
    Invalid = 0,
    #[strum(serialize = "METADATA_NODE")]
    Metadata = 1,
    #[strum(serialize = "MEM_LOAD_NODE")]
    Load = 2,
    #[strum(serialize = "MEM_STORE_NODE")]
    Store = 3,
    #[strum(serialize = "COMP_NODE")]
    Compute = 4,
    #[strum(serialize = "COMM_SEND_NODE")]
    Send = 5,
    #[strum(serialize = "COMM_RECV_NODE")]
    Receive = 6,
    #[strum(serialize = "COMM_COLL_NODE")]
    Collective = 7,
}

#[derive(Clone, PartialEq, Deserialize, Message)]
#[serde(default)]
pub(super) struct ValuesMessage {
    #[prost(string, tag = "1")]
    values: String,
}

/// The schema has a `oneof` here; on the wire that equals many optional values.
#[derive(Clone, PartialEq, Deserialize, Message)]
#[serde(default)]
pub(super) struct AttributeMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, optional, tag = "7")]
    #[serde(rename = "int32Val")]
    pub(super) int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    #[serde(rename = "int64Val", deserialize_with = "json::whole")]
    pub(super) int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    #[serde(rename = "uint32Val")]
    pub(super) uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    #[serde(rename = "uint64Val", deserialize_with = "json::some_count")]
    pub(super) uint64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    #[serde(rename = "boolVal")]
    pub(super) flag: Option<bool>,
    #[prost(message, optional, tag = "28")]
    #[serde(skip)]
    pub(super) flags: Option<FlagsMessage>,
    #[prost(string, optional, tag = "29")]
    #[serde(rename = "stringVal")]
    pub(super) text: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FlagsMessage {
    #[prost(bool, repeated, tag = "1")]
    values: Vec<bool>,
}

/// The first message of a trace, which is for people.
#[derive(Clone, PartialEq, Message)]
struct MetadataMessage {}

/// Reads the trace of a rank.
pub(super) fn read(rank: u32, trace: &[u8]) -> Result<Vec<TraceOperation>, TextError> {
    let mut rest = trace;
    let mut entries = Vec::new();
    next::<MetadataMessage>(rank, trace, &mut rest)?;
    while !rest.is_empty() {
        entries.push(next(rank, trace, &mut rest)?);
    }
    Ok(entries)
}

fn next<M: Message + Default>(rank: u32, trace: &[u8], rest: &mut &[u8]) -> Result<M, TextError> {
    let byte = trace.len() - rest.len();
    M::decode_length_delimited(rest).map_err(|error| {
        TextError::Whole(format!(
            "rank {rank}, byte {byte}: {error}; a trace is a protocol buffer of Chakra (`.et`)"
        ))
    })
}

impl TraceOperation {
    /// Returns its arguments, or an empty text.
    pub(super) fn inputs(&self) -> &str {
        self.inputs.as_ref().map_or("", |inputs| &inputs.values)
    }

    /// Returns the value of an integer attribute that is not negative.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let attribute = self.attribute(name)?;
        let signed = attribute.int64.or_else(|| attribute.int32.map(i64::from));
        let unsigned = attribute.uint64.or_else(|| attribute.uint32.map(u64::from));
        unsigned.or_else(|| u64::try_from(signed?).ok())
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.attribute(name)?.flag
    }

    pub(super) fn flags(&self, name: &str) -> &[bool] {
        let flags = self.attribute(name).and_then(|it| it.flags.as_ref());
        flags.map_or(&[], |flags| &flags.values)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name)?.text.as_deref()
    }

    fn attribute(&self, name: &str) -> Option<&AttributeMessage> {
        self.attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }
}
