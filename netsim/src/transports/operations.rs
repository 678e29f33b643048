//! Tasks as operations of `gradwire_collectives`, on lengths without bytes.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms, Operation};
use gradwire_protocol::units::{ByteCount, Rank, Step};

use gradwire_workloads::workload::CollectiveKind;

/// Bytes of an element.
const ELEMENT: usize = 4;

/// A collective of a group, without loss, layers and step.
pub(super) fn collective(kind: CollectiveKind, group: Group, bytes: ByteCount) -> Operation {
    let (collective, buffer, input) = buffers(kind, &group.ranks, bytes.as_usize());
    Operation {
        input,
        ..bare(group, collective, buffer)
    }
}

/// A send or a receive of this many bytes, without loss.
pub(super) fn message(group: Group, collective: Collective, bytes: ByteCount) -> Operation {
    let buffer = Buffer::Virtual(bytes.as_usize().next_multiple_of(ELEMENT));
    bare(group, collective, buffer)
}

fn bare(group: Group, collective: Collective, buffer: Buffer) -> Operation {
    Operation {
        group,
        sequence: 0,
        collective,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        buffer,
        input: None,
        splits: None,
        loss: LossTerms::NONE,
        step: Step(0),
        layers: Layers::default(),
        tensor_key: 0,
        deadline: None,
    }
}

/// The name of a collective, its result and its separate input.
fn buffers(
    kind: CollectiveKind,
    ranks: &[Rank],
    bytes: usize,
) -> (Collective, Buffer, Option<Buffer>) {
    let even = bytes.next_multiple_of(ELEMENT * ranks.len());
    let whole = Buffer::Virtual(bytes.next_multiple_of(ELEMENT));
    match kind {
        CollectiveKind::AllReduce => (Collective::AllReduce, whole, None),
        CollectiveKind::ReduceScatter => (
            Collective::ReduceScatter,
            Buffer::Virtual(even / ranks.len()),
            Some(Buffer::Virtual(even)),
        ),
        CollectiveKind::AllGather => (Collective::AllGather, Buffer::Virtual(even), None),
        CollectiveKind::AllToAll => (
            Collective::AllToAll,
            Buffer::Virtual(even),
            Some(Buffer::Virtual(even)),
        ),
        CollectiveKind::Broadcast { root } => {
            let root = ranks[root as usize];
            (Collective::Broadcast { root }, whole, None)
        }
        CollectiveKind::Reduce { root } => {
            let root = ranks[root as usize];
            (Collective::Reduce { root }, whole, None)
        }
        CollectiveKind::Barrier => (Collective::Barrier, Buffer::Virtual(0), None),
    }
}
