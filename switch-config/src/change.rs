//! The way from a running configuration to a wanted one, and back.

/// Two texts that a platform can load.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigChange {
    /// Loaded to apply a plan; empty when no change is needed.
    pub forward: String,
    /// Loaded to get back what was there; empty when no change is needed.
    pub inverse: String,
}
