//! How much a communicator remembers. Smaller numbers are for tests.

/// How much a communicator remembers. A job reaches the [usual](CommunicatorLimits::USUAL) numbers
/// after minutes or days; a test with smaller ones sees at once how it handles them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommunicatorLimits {
    /// Completed operations, of all groups together, at least 1.
    pub completed: usize,
    /// Plans of operations, at least 1.
    pub plans: usize,
    /// Steps of a tensor that wait for everything, so that its usual time is known, at least 1.
    pub learning: usize,
}

impl CommunicatorLimits {
    /// The limits of every job.
    pub const USUAL: Self = Self {
        completed: 1024,
        plans: 256,
        learning: 8,
    };
}
