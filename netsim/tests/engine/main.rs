//! The engine agrees with queueing theory, the switches' manuals and published runs.
//!
//! Every test runs whole fabrics. Facts of gradwire on a fabric are run through
//! `simulation::run`; facts of switches alone are run with hosts that send given packets
//! ([`world::Talker`]), so that no protocol stands between a formula and its queue.
//! `GRADWIRE_SLOW=1` adds the runs that take long.

mod all_reduce;
mod alone;
mod fairness;
mod in_network;
mod irn;
mod never_slower;
mod paths;
mod programs;
mod published;
mod queueing;
mod repeatable;
mod scheduling;
mod shares;
mod sharing;
mod small_tensors;
mod switch;
mod training;
mod world;
