//! Which message sends next, and how urgent an operation is.

use serde::{Deserialize, Serialize};

use crate::units::Layer;

/// Which of several messages sends next, the smallest first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum SendTurn {
    /// The segments of a message, in the order of their operations' urgency; of equally urgent ones
    /// those that were lost precede the others.
    Segments(Urgency, SendAttempt),
    /// Parity, after the segments of all messages.
    Parity,
}

/// Whether segments were sent before.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum SendAttempt {
    /// They were sent, and lost.
    Again,
    /// They were not sent.
    First,
}

/// How urgent the messages of an operation of a training step are, the most urgent first: as its
/// layer that is nearest to the front, or as that layer's class ([`UrgencyUnit`]). A backward pass
/// submits the front layers last, and they are needed first. An operation ends as a whole, so all
/// its messages are equally urgent. Otherwise sums of its front layers would overtake contributions
/// of its back layers, for which peers wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Urgency(Layer);

impl Urgency {
    /// For an operation of one layer: the next forward pass begins at the front.
    pub fn of(layer: Layer) -> Self {
        Self(layer)
    }
}

/// How finely the layers of operations tell them apart by urgency.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UrgencyUnit {
    /// By layer. For operations in which all ranks send alike.
    Layer,
    /// By class of layers; within a class, in the order of arrival. For operations with a root,
    /// such as a parameter server: it sends a sum once all contributions have arrived. If each
    /// layer overtook the one before it, hardly any contribution would be whole until the backward
    /// pass ends, and the root's link would idle until then.
    Class,
}
