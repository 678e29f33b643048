//! The first and last tasks of training steps, between which results are measured.

use std::ops::Range;

use gradwire_protocol::units::Span;

/// The first and last tasks of a training job's steps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StepEnds {
    /// Name of the job: the workload that it came from.
    pub name: String,
    /// Its groups, which tell its collectives from those of other jobs.
    pub groups: Range<u32>,
    /// Number of steps.
    pub steps: u32,
    /// Names of the model's layers, in the order of the forward pass.
    pub layers: Vec<String>,
    /// The hosts that compute.
    pub workers: Vec<Worker>,
}

/// A host that computes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Worker {
    /// The host.
    pub host: u32,
    /// Its computing time in a step, forward and backward.
    pub compute: Span,
    /// The last task of each forward pass in its program: one more than there are steps.
    pub forward_ends: Vec<u32>,
}
