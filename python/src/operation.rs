//! Turns a C operation into one of `gradwire-collectives`. This file checks every value that would
//! otherwise cause undefined behaviour; the communicator checks the rest.
#![expect(unsafe_code, reason = "the memory of tensors comes as raw pointers")]

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{
    Collective, Group, Layers, LossTerms, Operation, Splits, takes_codec,
};
use gradwire_protocol::job::{CodecName, CodecTerms, HoleFilling, Job};
use gradwire_protocol::units::{Layer, Rank, Share, Span, Step};
use gradwire_runtime::RankTask;

use crate::layout::GwOperation;
use crate::lent::{LentTensor, TensorAccess};

const ALL_REDUCE: u32 = 0;
const BROADCAST: u32 = 1;
const ALL_GATHER: u32 = 2;
const REDUCE_SCATTER: u32 = 3;
const BARRIER: u32 = 4;
const SEND: u32 = 5;
const RECEIVE: u32 = 6;
const REDUCE: u32 = 7;
const GATHER: u32 = 8;
const SCATTER: u32 = 9;
const ALL_TO_ALL: u32 = 10;
const RECEIVE_ANY: u32 = 11;

const CODEC_OF_JOB: u32 = 1;
/// The codecs by their numbers in the header.
const CODECS: [CodecName; 7] = [
    CodecName::None,
    CodecName::None, // the job's, in its place
    CodecName::Onebit,
    CodecName::Tbq,
    CodecName::Terngrad,
    CodecName::Topk,
    CodecName::Blockfloat,
];

const HOLES_OF_JOB: u32 = 0;
const HOLES_PREVIOUS: u32 = 1;

/// Longer timeouts count as none: a span holds 213 days.
const TIMEOUT_MAX_SECONDS: f64 = 1e7;

/// Checks a C operation of rank `me` and converts it.
///
/// # Safety
/// The pointers of `operation` are null or point to as much memory as their lengths say; `buffer`
/// and `input` stay valid and untouched until the operation has ended.
pub(crate) unsafe fn task(
    operation: &GwOperation,
    job: &Job,
    me: Rank,
) -> Result<RankTask, String> {
    // SAFETY: the caller guarantees `ranks`.
    let ranks = unsafe { slice(operation.ranks, operation.ranks_len, "ranks") }?;
    let ranks: Option<Vec<Rank>> = ranks
        .iter()
        .map(|&rank| u16::try_from(rank).ok().map(Rank))
        .collect();
    let ranks = ranks.ok_or("ranks: allowed are 0 to 65535")?;
    let collective = collective(operation, &ranks)?;
    let op = ReduceOp::from_number(operation.reduce);
    let role = RootRole::of(collective, me);
    // SAFETY: the caller guarantees `buffer`, `input` and `layers`.
    let ((buffer, input), layers) = unsafe { (memory(operation, role)?, layers(operation)?) };
    let taken = Operation {
        group: Group {
            id: group_number(operation.group)?,
            ranks: ranks.into(),
        },
        sequence: operation.sequence,
        collective,
        dtype: dtype(operation.dtype)?,
        op: op
            .or_else(|| (!collective.reduces()).then_some(ReduceOp::Sum))
            .ok_or_else(|| format!("reduce {}: allowed are 0 to 7", operation.reduce))?,
        buffer,
        input,
        // SAFETY: the caller guarantees the splits.
        splits: unsafe { splits(operation)? },
        loss: loss(operation, job, (collective, op))?,
        step: Step(operation.step),
        layers,
        tensor_key: operation.tensor_key,
        deadline: None,
    };
    Ok(RankTask {
        operation: taken,
        timeout: timeout(operation.timeout_seconds),
    })
}

/// The group with this number.
pub(crate) fn group_number(number: u32) -> Result<u16, String> {
    u16::try_from(number).map_err(|_| format!("group {number}: allowed are 0 to 65535"))
}

/// The element type with this number in the header.
pub(crate) fn dtype(number: u32) -> Result<DType, String> {
    DType::from_number(number).ok_or_else(|| format!("dtype {number}: allowed are 0 to 11"))
}

fn collective(operation: &GwOperation, ranks: &[Rank]) -> Result<Collective, String> {
    let root = || {
        let found = ranks.get(operation.root as usize).copied();
        let members = ranks.len();
        found.ok_or_else(|| {
            format!(
                "root {} in a group of {members} ranks: give a position below {members}",
                operation.root
            )
        })
    };
    let tag = || {
        let tag = operation.tag;
        u16::try_from(tag).map_err(|_| format!("tag {tag}: allowed are 0 to 65535"))
    };
    Ok(match operation.kind {
        ALL_REDUCE => Collective::AllReduce,
        BROADCAST => Collective::Broadcast { root: root()? },
        ALL_GATHER => Collective::AllGather,
        REDUCE_SCATTER => Collective::ReduceScatter,
        BARRIER => Collective::Barrier,
        SEND => Collective::Send {
            to: root()?,
            tag: tag()?,
        },
        RECEIVE => Collective::Receive {
            from: root()?,
            tag: tag()?,
        },
        RECEIVE_ANY => Collective::ReceiveAny { tag: tag()? },
        REDUCE => Collective::Reduce { root: root()? },
        GATHER => Collective::Gather { root: root()? },
        SCATTER => Collective::Scatter { root: root()? },
        ALL_TO_ALL => Collective::AllToAll,
        kind => return Err(format!("kind {kind}: allowed are 0 to 11")),
    })
}

fn loss(
    operation: &GwOperation,
    job: &Job,
    (collective, op): (Collective, Option<ReduceOp>),
) -> Result<LossTerms, String> {
    let tolerance = operation.tolerance;
    let holes = match operation.holes {
        HOLES_OF_JOB => job.holes,
        HOLES_PREVIOUS => HoleFilling::Previous,
        holes => return Err(format!("holes {holes}: allowed are 0 and 1")),
    };
    let codec = codec(operation, job, (collective, op))?;
    if tolerance < 0.0 {
        return Ok(LossTerms {
            holes,
            codec,
            ..LossTerms::NONE
        });
    }
    let share = Share::new(tolerance);
    let tolerance = share
        .ok_or_else(|| format!("tolerance {tolerance}: allowed are 0 to 1, negative: lossless"))?;
    Ok(LossTerms {
        tolerance,
        holes,
        codec,
    })
}

/// The codec that the operation names, or the job's if codecs are defined for it.
fn codec(
    operation: &GwOperation,
    job: &Job,
    (collective, op): (Collective, Option<ReduceOp>),
) -> Result<CodecTerms, String> {
    let (number, share) = (operation.codec, operation.codec_share);
    if number == CODEC_OF_JOB {
        let dtype = dtype(operation.dtype)?;
        let is_defined = op.is_some_and(|op| takes_codec(collective, op, dtype));
        return Ok(if is_defined {
            job.codec()
        } else {
            CodecTerms::NONE
        });
    }
    let name = CODECS.get(number as usize).copied();
    let name = name.ok_or_else(|| format!("codec {number}: allowed are 0 to 6"))?;
    let of_job = job.codec();
    let share = match share == 0.0 {
        true => Some(of_job.share),
        false => Share::new(share),
    };
    let share = share.ok_or_else(|| {
        let given = operation.codec_share;
        format!("codec_share {given}: allowed are 0 to 1; 0 is the job's")
    })?;
    Ok(CodecTerms {
        name,
        share,
        ..of_job
    })
}

fn timeout(seconds: f64) -> Option<Span> {
    let bounded = seconds > 0.0 && seconds < TIMEOUT_MAX_SECONDS;
    bounded.then(|| Span::from_nanos((seconds * 1e9) as u64))
}

/// Whether this rank is the root of an operation that has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RootRole {
    Root,
    Other,
}

impl RootRole {
    fn of(collective: Collective, me: Rank) -> Self {
        match collective {
            Collective::Reduce { root }
            | Collective::Gather { root }
            | Collective::Scatter { root }
                if root == me =>
            {
                Self::Root
            }
            _ => Self::Other,
        }
    }
}

/// The buffer and the input for the communicator, whose rules are stricter than the header's.
unsafe fn memory(
    operation: &GwOperation,
    role: RootRole,
) -> Result<(Buffer, Option<Buffer>), String> {
    // SAFETY: the caller of `task` guarantees the buffer.
    let buffer = || unsafe { buffer(operation) };
    // SAFETY: the caller of `task` guarantees the input.
    let input = || unsafe { input(operation) };
    let has_input = !operation.input.is_null();
    let is_own_block = operation.kind == GATHER && role == RootRole::Other;
    if has_input && !is_own_block && operation.kind != BARRIER {
        check_apart(operation)?;
    }
    Ok(match (operation.kind, role) {
        (BARRIER, _) => (Buffer::Owned(Vec::new()), None),
        (REDUCE_SCATTER | ALL_TO_ALL, _) | (SCATTER, RootRole::Root) => (buffer()?, Some(input()?)),
        (ALL_GATHER, _) | (GATHER, RootRole::Root) if has_input => (buffer()?, Some(input()?)),
        // The core takes its own block as the buffer, which it may change.
        (GATHER, RootRole::Other) if has_input => (input()?.duplicate(), None),
        // Parts of a large result pass through this rank, so it works on a copy: the caller's
        // buffer is only read.
        (REDUCE, RootRole::Other) => (buffer()?.duplicate(), None),
        _ => (buffer()?, None),
    })
}

/// The tensor that an operation changes.
unsafe fn buffer(operation: &GwOperation) -> Result<Buffer, String> {
    let (start, bytes) = (operation.buffer.cast(), operation.bytes);
    // SAFETY: the caller of `task` guarantees `buffer`, and does not touch it until the end.
    let tensor = unsafe { LentTensor::new(start, bytes, TensorAccess::Change) };
    lent(tensor, "buffer", bytes)
}

/// The tensor that an operation only reads.
unsafe fn input(operation: &GwOperation) -> Result<Buffer, String> {
    let (start, bytes) = (operation.input.cast_mut().cast(), operation.input_bytes);
    // SAFETY: the caller of `task` guarantees `input`, and no caller writes to it meanwhile.
    let tensor = unsafe { LentTensor::new(start, bytes, TensorAccess::Read) };
    lent(tensor, "input", bytes)
}

fn lent(tensor: Option<LentTensor>, name: &str, bytes: usize) -> Result<Buffer, String> {
    let tensor = tensor.ok_or_else(|| null_error(name, bytes))?;
    Ok(Buffer::Lent(Box::new(tensor)))
}

/// Refuses an input that shares memory with the buffer: the operation writes while it reads.
fn check_apart(operation: &GwOperation) -> Result<(), String> {
    let buffer = operation.buffer.addr();
    let input = operation.input.addr();
    let apart = |first: usize, bytes: usize, second: usize| {
        second
            .checked_sub(first)
            .is_some_and(|distance| distance >= bytes)
    };
    let empty = operation.bytes == 0 || operation.input_bytes == 0;
    if empty || apart(buffer, operation.bytes, input) || apart(input, operation.input_bytes, buffer)
    {
        return Ok(());
    }
    Err(format!(
        "the input of {} bytes overlaps the buffer of {} bytes: give memory of its own, or no \
         input for an all-gather or a gather in place",
        operation.input_bytes, operation.bytes
    ))
}

/// The splits of an all-to-all, one for each rank of its group.
unsafe fn splits(operation: &GwOperation) -> Result<Option<Splits>, String> {
    let (input, output) = (operation.input_splits, operation.output_splits);
    if operation.kind != ALL_TO_ALL || (input.is_null() && output.is_null()) {
        return Ok(None);
    }
    let read = |start, name| {
        // SAFETY: the caller of `task` guarantees as many splits as ranks.
        let splits = unsafe { slice(start, operation.ranks_len, name) }?;
        Ok::<_, String>(splits.iter().map(|&split| split as usize).collect())
    };
    Ok(Some(Splits {
        input: read(input, "input_splits")?,
        output: read(output, "output_splits")?,
    }))
}

unsafe fn layers(operation: &GwOperation) -> Result<Layers, String> {
    let count = u16::try_from(operation.layer_count)
        .map_err(|_| format!("{} layers: allowed are 0 to 65535", operation.layer_count))?;
    let number = |value: u32| {
        let layer = u16::try_from(value).ok().map(Layer);
        let tagged = layer.filter(|&layer| layer != Layer::UNTAGGED);
        tagged.ok_or_else(|| format!("layer {value}: allowed are 0 to 65534"))
    };
    // SAFETY: the caller of `task` guarantees `layers`.
    let layers = unsafe { slice(operation.layers, operation.layers_len, "layers") }?;
    let spans = layers
        .iter()
        .map(|layer| Ok((layer.offset_bytes as usize, number(layer.layer)?)));
    Ok(Layers {
        count,
        spans: spans.collect::<Result<_, String>>()?,
    })
}

fn null_error(name: &str, len: usize) -> String {
    format!("{name} is null but has a length of {len}")
}

/// # Safety
/// As [`task`], for one of its pointers.
unsafe fn slice<'a, T>(start: *const T, len: usize, name: &str) -> Result<&'a [T], String> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null_error(name, len)),
        // SAFETY: the caller guarantees `len` entries at `start`.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(start, len) }),
    }
}

/// Memory that a caller names and lends for writing.
///
/// # Safety
/// As [`task`], for one of its pointers; nothing else refers to the memory for `'a`.
pub(crate) unsafe fn slice_mut<'a>(
    start: *mut u8,
    len: usize,
    name: &str,
) -> Result<&'a mut [u8], String> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null_error(name, len)),
        // SAFETY: the caller guarantees `len` bytes at `start`, and for `'a`.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(start, len) }),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;
    use crate::layout::GwLayer;

    const ME: Rank = Rank(4);
    const RANKS: [u32; 3] = [9, 4, 6];
    /// Position of this rank in `RANKS`.
    const OWN: u32 = 1;
    /// Position of another one.
    const OTHER: u32 = 0;
    static NOTHING: [u64; 3] = [0; 3];

    fn blank(kind: u32) -> GwOperation {
        GwOperation {
            kind,
            dtype: DType::I16 as u32,
            reduce: ReduceOp::Max as u32,
            root: OTHER,
            buffer: std::ptr::null_mut(),
            bytes: 0,
            input: null(),
            input_bytes: 0,
            group: 3,
            ranks: RANKS.as_ptr(),
            ranks_len: RANKS.len(),
            sequence: 7,
            tolerance: -1.0,
            step: 0,
            layer_count: 0,
            layers: null(),
            layers_len: 0,
            codec: 0,
            codec_share: 0.0,
            tensor_key: 0,
            timeout_seconds: 0.0,
            tag: 500,
            holes: 0,
            input_splits: null(),
            output_splits: null(),
        }
    }

    /// Converts an operation on a buffer of ones and an input of twos, and checks the result.
    fn taken(change: impl FnOnce(&mut GwOperation), check: impl FnOnce(Operation)) {
        let (mut buffer, input) = (vec![1_u8; 6], vec![2_u8; 18]);
        let mut operation = GwOperation {
            buffer: buffer.as_mut_ptr().cast(),
            bytes: buffer.len(),
            input: input.as_ptr().cast(),
            input_bytes: input.len(),
            ..blank(ALL_REDUCE)
        };
        change(&mut operation);
        // SAFETY: buffer and input live until `check`, which takes the operation, has returned.
        let task = unsafe { task(&operation, &Job::default(), ME) };
        check(task.expect("a valid operation").operation);
    }

    #[test]
    fn gather_and_scatter_use_the_roots_memory() {
        let shape = |operation: &Operation| {
            let input = operation.input.as_ref().map(Buffer::len);
            (
                operation.buffer.bytes().expect("bytes")[0],
                operation.buffer.len(),
                input,
            )
        };
        let cases = [
            (SCATTER, OWN, (1, 6, Some(18))),
            (SCATTER, OTHER, (1, 6, None)),
            (GATHER, OWN, (1, 6, Some(18))),
            (GATHER, OTHER, (2, 18, None)),
            (ALL_TO_ALL, OTHER, (1, 6, Some(18))),
            (REDUCE, OTHER, (1, 6, None)),
            (RECEIVE_ANY, OTHER, (1, 6, None)),
        ];
        for (kind, root, expected) in cases {
            let change = |operation: &mut GwOperation| {
                (operation.kind, operation.root) = (kind, root);
            };
            taken(change, |operation| {
                assert_eq!(shape(&operation), expected, "kind {kind}");
            });
        }
        let in_place = |operation: &mut GwOperation| {
            (operation.kind, operation.input) = (GATHER, null());
        };
        taken(in_place, |operation| {
            assert_eq!(shape(&operation), (1, 6, None));
        });
    }

    #[test]
    fn an_input_within_the_buffer_is_refused() {
        let mut memory = [1_u8; 24];
        let mut operation = |input_at: usize| {
            let buffer = memory.as_mut_ptr();
            let operation = GwOperation {
                buffer: buffer.cast(),
                bytes: 6,
                input: memory[input_at..].as_ptr().cast(),
                input_bytes: 18,
                ..blank(REDUCE_SCATTER)
            };
            // SAFETY: the memory lives until the task is dropped, which is at once.
            unsafe { task(&operation, &Job::default(), ME) }.map(drop)
        };
        let error = operation(5).expect_err("one byte is in both");
        assert!(
            error.starts_with("the input of 18 bytes overlaps"),
            "{error}"
        );
        assert_eq!(operation(6), Ok(()));
    }

    #[test]
    fn only_the_root_reduces_in_place() {
        for (root, is_lent) in [(OWN, true), (OTHER, false)] {
            let change = |operation: &mut GwOperation| {
                (operation.kind, operation.root) = (REDUCE, root);
            };
            taken(change, |operation| {
                let lent = matches!(operation.buffer, Buffer::Lent(_));
                assert_eq!(lent, is_lent);
            });
        }
    }

    #[test]
    fn tags_and_splits_are_converted() {
        let tagged = |operation: &mut GwOperation| operation.kind = SEND;
        taken(tagged, |operation| {
            let expected = Collective::Send {
                to: Rank(9),
                tag: 500,
            };
            assert_eq!(operation.collective, expected);
        });
        let (input, output) = ([4_u64, 6, 8], [0_u64, 6, 0]);
        let uneven = |operation: &mut GwOperation| {
            operation.kind = ALL_TO_ALL;
            (operation.input_splits, operation.output_splits) = (input.as_ptr(), output.as_ptr());
        };
        taken(uneven, |operation| {
            let splits = operation.splits.expect("splits were given");
            assert_eq!(
                (&*splits.input, &*splits.output),
                (&[4, 6, 8][..], &[0, 6, 0][..])
            );
        });
    }

    #[test]
    fn forbidden_values_are_named() {
        let refused = |change: fn(&mut GwOperation)| {
            let mut operation = blank(SEND);
            change(&mut operation);
            // SAFETY: every pointer is null or valid, and the operation is dropped at once.
            let task = unsafe { task(&operation, &Job::default(), ME) };
            task.expect_err("not allowed")
        };
        let kind = refused(|operation| operation.kind = 12);
        assert_eq!(kind, "kind 12: allowed are 0 to 11");
        let tag = refused(|operation| operation.tag = 65_536);
        assert_eq!(tag, "tag 65536: allowed are 0 to 65535");
        let layers = refused(|operation| operation.layer_count = 65_536);
        assert_eq!(layers, "65536 layers: allowed are 0 to 65535");
        let untagged = refused(|operation| {
            static LAYER: GwLayer = GwLayer {
                offset_bytes: 0,
                layer: 65_535,
                reserved: 0,
            };
            (operation.layers, operation.layers_len) = (&raw const LAYER, 1);
        });
        assert_eq!(untagged, "layer 65535: allowed are 0 to 65534");
        let splits = refused(|operation| {
            operation.kind = ALL_TO_ALL;
            operation.input_splits = NOTHING.as_ptr();
        });
        assert_eq!(splits, "output_splits is null but has a length of 3");
    }
}
