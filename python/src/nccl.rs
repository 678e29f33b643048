//! The NCCL net plugin: NCCL's messages between hosts travel as gradwire's.
//!
//! Start here:
//! - `plugin`: the plugin of this process, and the functions that NCCL calls, with the shapes of
//!   version 12.
//! - `abi`: NCCL's structures. `tables`: the symbols `ncclNetPlugin_v8` to `_v12`, which adapt the
//!   older shapes.
//! - `tuner`: the symbols `ncclTunerPlugin_v3` to `_v6`: NCCL uses the protocol Simple between
//!   hosts.
//! - `profiler`: the symbols `ncclProfiler_v4` to `_v6`, which record NCCL's collectives and
//!   messages; `profile`: the file of them.
//! - `launch`: the environment that NCCL's process gives the plugin. `voice`: its lines in NCCL's
//!   log.
//!
//! What the plugin promises to NCCL:
//! 1. Host memory only. NCCL stages the memory of GPUs itself.
//! 2. Messages are lossless and match in the order of posting, one receive at a time; tags are not
//!    needed for that.
//! 3. `listen`, `connect`, `accept`, `isend`, `irecv`, `test` and `close*` never wait for a peer.
//! 4. Bytes may be written out of order into a receive's memory before it is done: the protocols LL
//!    and LL128, which read that memory meanwhile, are switched off.
//!
//! Connections are those of [`gradwire_runtime::party`].

mod abi;
mod launch;
mod plugin;
mod profile;
mod profiler;
mod tables;
mod tuner;
mod voice;

pub use abi::{
    NcclResult, PropertiesHead, PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12,
    VirtualDevice, WideVirtualDevice,
};
pub use profiler::{PROFILER_V4, PROFILER_V5, PROFILER_V6, ProfilerTableV4, ProfilerTableV5};
pub use tables::{
    NET_V8, NET_V9, NET_V10, NET_V11, NET_V12, NetTableV8, NetTableV9, NetTableV10, NetTableV11,
    NetTableV12,
};
pub use tuner::{
    TUNER_V3, TUNER_V4, TUNER_V5, TUNER_V6, TunerTableV3, TunerTableV4, TunerTableV5, TunerTableV6,
};
