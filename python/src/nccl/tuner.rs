//! The symbols by which NCCL asks for its choice of algorithm and protocol: between hosts the
//! plugin rules out the protocols LL and LL128, whose receivers look at memory while it is written.
//!
//! A communicator inside one host is left alone.
#![expect(unsafe_code, reason = "NCCL's interface is made of raw pointers")]
#![expect(
    clippy::too_many_arguments,
    reason = "NCCL fixes the arguments of its functions"
)]

use std::ffi::{c_char, c_int, c_void};

use super::abi::{Logger, NcclResult};
use super::plugin;

/// `NCCL_PROTO_SIMPLE`: the other protocols have lower numbers.
const SIMPLE: usize = 2;
/// `NCCL_ALGO_PROTO_IGNORE`.
const IGNORE: f32 = -1.0;

/// Contexts: whether a communicator has several hosts. They are addresses that no one reads.
static ONE_HOST: u8 = 1;
static SEVERAL_HOSTS: u8 = 2;

type Place = *mut *mut c_void;
type InitV3 = unsafe extern "C" fn(usize, usize, Logger, Place) -> NcclResult;
type InitV5 =
    unsafe extern "C" fn(Place, u64, usize, usize, Logger, *mut c_void, *mut c_void) -> NcclResult;
type ChoiceV3 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    *mut c_int,
) -> NcclResult;
type ChoiceV4 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut *mut f32,
    c_int,
    c_int,
    c_int,
    *mut c_int,
) -> NcclResult;
type End = unsafe extern "C" fn(*mut c_void) -> NcclResult;

/// A name and three functions.
#[derive(Debug)]
#[repr(C)]
pub struct TunerTable<Init, Choice> {
    name: *const c_char,
    init: Init,
    get_coll_info: Choice,
    end: End,
}

// SAFETY: the table never changes, and its name is a literal.
unsafe impl<Init, Choice> Sync for TunerTable<Init, Choice> {}

/// `ncclTuner_v3_t`.
pub type TunerTableV3 = TunerTable<InitV3, ChoiceV3>;
/// `ncclTuner_v4_t`.
pub type TunerTableV4 = TunerTable<InitV3, ChoiceV4>;
/// `ncclTuner_v5_t`.
pub type TunerTableV5 = TunerTable<InitV5, ChoiceV4>;

/// `ncclTuner_v6_t`.
#[derive(Debug)]
#[repr(C)]
pub struct TunerTableV6 {
    base: TunerTableV5,
    /// `getChunkSize`: NCCL chooses.
    get_chunk_size: Option<End>,
}

/// A table with this start and choice.
macro_rules! tuner {
    ($init:path, $choice:path) => {
        TunerTable {
            name: plugin::name(),
            init: $init,
            get_coll_info: $choice,
            end,
        }
    };
}

/// What NCCL 2.22 and 2.23 look for.
#[unsafe(export_name = "ncclTunerPlugin_v3")]
pub static TUNER_V3: TunerTableV3 = tuner!(init_v3, choice_v3);
/// What NCCL 2.24 to 2.27 looks for.
#[unsafe(export_name = "ncclTunerPlugin_v4")]
pub static TUNER_V4: TunerTableV4 = tuner!(init_v3, choice_v4);
/// What NCCL 2.28 and 2.29 look for.
#[unsafe(export_name = "ncclTunerPlugin_v5")]
pub static TUNER_V5: TunerTableV5 = tuner!(init_v5, choice_v4);
/// What NCCL 2.30 and later look for.
#[unsafe(export_name = "ncclTunerPlugin_v6")]
pub static TUNER_V6: TunerTableV6 = TunerTableV6 {
    base: tuner!(init_v5, choice_v4),
    get_chunk_size: None,
};

fn context(nodes: usize) -> *mut c_void {
    let of_nodes = if nodes > 1 { &SEVERAL_HOSTS } else { &ONE_HOST };
    std::ptr::from_ref(of_nodes).cast_mut().cast()
}

unsafe extern "C" fn init_v3(
    _ranks: usize,
    nodes: usize,
    _logger: Logger,
    out: Place,
) -> NcclResult {
    // SAFETY: NCCL gives a place for the context.
    unsafe { *out = context(nodes) };
    NcclResult::Success
}

unsafe extern "C" fn init_v5(
    out: Place,
    _comm_id: u64,
    _ranks: usize,
    nodes: usize,
    _logger: Logger,
    _nvlink: *mut c_void,
    _constants: *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL gives a place for the context.
    unsafe { *out = context(nodes) };
    NcclResult::Success
}

unsafe extern "C" fn choice_v3(
    held: *mut c_void,
    _function: c_int,
    _bytes: usize,
    _operations: c_int,
    table: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    _channels: *mut c_int,
) -> NcclResult {
    if held == context(2) {
        // SAFETY: NCCL gives a table of `algorithms` rows with `protocols` costs each.
        unsafe { keep_simple(table, (algorithms, protocols)) };
    }
    NcclResult::Success
}

unsafe extern "C" fn choice_v4(
    held: *mut c_void,
    function: c_int,
    bytes: usize,
    operations: c_int,
    table: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe {
        choice_v3(
            held, function, bytes, operations, table, algorithms, protocols, channels,
        )
    }
}

/// Rules out every protocol below Simple. The table is NCCL's two-dimensional array of costs,
/// which it passes by its first address.
///
/// # Safety
/// The table has as many costs as `algorithms` times `protocols`.
unsafe fn keep_simple(table: *mut *mut f32, (algorithms, protocols): (c_int, c_int)) {
    let size = |count: c_int| usize::try_from(count).unwrap_or(0);
    let (algorithms, protocols) = (size(algorithms), size(protocols));
    // SAFETY: the caller guarantees the costs.
    let costs = unsafe { std::slice::from_raw_parts_mut(table.cast(), algorithms * protocols) };
    for row in costs.chunks_exact_mut(protocols.max(1)) {
        for cost in row.iter_mut().take(SIMPLE) {
            *cost = IGNORE;
        }
    }
}

unsafe extern "C" fn end(_held: *mut c_void) -> NcclResult {
    NcclResult::Success
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn tables_have_the_sizes_of_nccl() {
        assert_eq!(size_of::<TunerTableV3>(), 32);
        assert_eq!(size_of::<TunerTableV6>(), 40);
    }

    fn costs(nodes: usize) -> [[f32; 3]; 7] {
        let mut costs = [[2.0; 3]; 7];
        let (mut held, mut channels) = (std::ptr::null_mut(), 0);
        let logger: Logger = None;
        let null = std::ptr::null_mut();
        // SAFETY: the table has 7 rows of 3 costs, and every place is there.
        unsafe {
            (TUNER_V6.base.init)(&mut held, 1, 8, nodes, logger, null, null);
            let table = costs.as_mut_ptr().cast();
            (TUNER_V6.base.get_coll_info)(held, 0, 1024, 1, table, 7, 3, 0, &mut channels);
            (TUNER_V6.base.end)(held);
        }
        costs
    }

    #[test]
    fn between_hosts_only_simple_has_a_cost() {
        assert_eq!(costs(2), [[IGNORE, IGNORE, 2.0]; 7]);
        assert_eq!(costs(1), [[2.0; 3]; 7]);
    }
}
