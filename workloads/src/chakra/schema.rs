//! The messages of a trace: the fields of `et_def.proto` that the simulator uses.

use prost::Message;

use super::error::ChakraError;

/// An operation of a trace.
#[derive(Clone, Debug)]
pub(super) struct TraceOperation {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: OperationKind,
    /// Ids of the operations whose results this one needs.
    pub(super) data: Vec<u64>,
    /// Microseconds.
    pub(super) duration: u64,
    /// Its arguments; a list of process groups in the operation that announces them.
    pub(super) inputs: String,
    pub(super) attributes: Vec<AttributeMessage>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OperationKind {
    Invalid,
    Metadata,
    Load,
    Store,
    Compute,
    Send,
    Receive,
    Collective,
}

#[derive(Clone, PartialEq, Message)]
struct EntryMessage {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "5")]
    data: Vec<u64>,
    #[prost(uint64, tag = "7")]
    duration: u64,
    #[prost(message, optional, tag = "8")]
    inputs: Option<ValuesMessage>,
    #[prost(message, repeated, tag = "10")]
    attributes: Vec<AttributeMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ValuesMessage {
    #[prost(string, tag = "1")]
    values: String,
}

/// The schema has a `oneof` here; on the wire that equals many optional values.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, optional, tag = "7")]
    pub(super) int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    pub(super) int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    pub(super) uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    pub(super) uint64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    pub(super) flag: Option<bool>,
    #[prost(message, optional, tag = "28")]
    pub(super) flags: Option<FlagsMessage>,
    #[prost(string, optional, tag = "29")]
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
pub(super) fn read(rank: u32, trace: &[u8]) -> Result<Vec<TraceOperation>, ChakraError> {
    let mut rest = trace;
    let mut entries = Vec::new();
    next::<MetadataMessage>(rank, trace, &mut rest)?;
    while !rest.is_empty() {
        let message: EntryMessage = next(rank, trace, &mut rest)?;
        entries.push(TraceOperation {
            id: message.id,
            name: message.name,
            kind: OperationKind::of(message.kind),
            data: message.data,
            duration: message.duration,
            inputs: message.inputs.unwrap_or_default().values,
            attributes: message.attributes,
        });
    }
    Ok(entries)
}

fn next<M: Message + Default>(rank: u32, trace: &[u8], rest: &mut &[u8]) -> Result<M, ChakraError> {
    let byte = trace.len() - rest.len();
    M::decode_length_delimited(rest).map_err(|error| ChakraError::Bytes {
        rank,
        byte,
        what: error.to_string(),
    })
}

impl OperationKind {
    pub(super) fn of(number: i32) -> Self {
        match number {
            1 => Self::Metadata,
            2 => Self::Load,
            3 => Self::Store,
            4 => Self::Compute,
            5 => Self::Send,
            6 => Self::Receive,
            7 => Self::Collective,
            _ => Self::Invalid,
        }
    }
}

impl TraceOperation {
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
